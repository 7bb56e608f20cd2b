"""The mechanisms of the two papers, one module per figure, to read next to the papers.

Figure 2      user_groups   the split of the opt-in users into S and T
Figure 3      head_list     CreateHeadList
Figure 4      optin         EstimateOptinProbabilities
Figure 5      client        EstimateClientProbabilities, used by two_stage_estimates
Figure 6      local         LocalAlg
Figure 7      blend         BlendProbabilities
Section 4     accuracy      L1 and NDCG
Release-Data  click_graph   from the earlier paper, on query click graphs
"""

__all__ = [
    "accuracy",
    "blend",
    "click_graph",
    "client",
    "head_list",
    "local",
    "optin",
    "two_stage_estimates",
    "user_groups",
]
