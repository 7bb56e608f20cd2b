"""Published results as data frames, for notebooks: `pip install 'blendstream[pandas]'`.

import blendstream

results = blendstream.Results("https://results.example")
results.queries()  # the newest epoch, a row for each query, most frequent first
results.history("tide tables")  # its share in each epoch, with dates and intervals
"""

from blendstream.results import Results, ResultsError

__all__ = ["Results", "ResultsError"]
