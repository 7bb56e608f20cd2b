"""What every mechanism is written in: records, cells, parameters, estimates, intervals, errors."""
