"""The process that records a program: started by the relay, see `recorder`."""

import sys

from barograph.sidecar.program.recorder import main

sys.exit(main())
