"""What the batches are like: tokens, padding, lengths, and those that come again."""
