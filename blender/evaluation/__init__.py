"""How close the published estimates come to the truth, on populations whose truth is known."""
