"""`python -m barograph.sidecar RUN`."""

from barograph.sidecar.process import main

raise SystemExit(main())
