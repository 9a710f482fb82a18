"""What the machine does: GPUs by NVML or amdsmi, the host by psutil, a thread that samples them."""
