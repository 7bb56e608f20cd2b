"""Privacy costs: composition, the ledger, a period's budget, and the plan of an epoch."""

__all__ = ["budget_period", "composition", "epoch_plan", "ledger"]
