"""Where records leave the training process. In: records. Out: lines on a screen; later, alerts."""
