"""What epochs cost: how privacy losses add up, the ledger, a period's budget, an epoch's plan."""

__all__ = ["budget_period", "composition", "epoch_plan", "ledger"]
