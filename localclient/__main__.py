"""`python -m localclient`."""

import sys

from localclient.cli import main

sys.exit(main())
