"""`python -m barograph`: the same as the command `barograph`."""

from barograph.cli import main

raise SystemExit(main())
