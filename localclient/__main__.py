"""`python -m blendstream.localclient`."""

import sys

from blendstream.localclient.cli import main

sys.exit(main())
