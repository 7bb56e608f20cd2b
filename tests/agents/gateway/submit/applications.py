"""An application that sends opt-in records."""

from __future__ import annotations

import secrets

from blendstream.agents.tokens import ApplicationTokens, add_token
from tests.agents.gateway.doubles import TestGateway, make_gateway


def record(user_id: str = "user-1", **changes):
    return {
        "user_id": user_id,
        "slot": 0,
        "query": " Weather  Today",
        "url": "https://w.example/",
    } | changes


class Application:
    """Posts with a good token."""

    def __init__(self, tmp_path, **options) -> None:
        path = tmp_path / f"tokens-{secrets.token_hex(4)}"
        self.header = {"authorization": f"Bearer {add_token(path, 'news-app')}"}
        tokens = ApplicationTokens(path, clock=lambda: 0.0)
        self.gateway: TestGateway = make_gateway(tokens=tokens, **options)

    async def post(self, *records):
        body = list(records) if len(records) > 1 else records[0]
        return await self.gateway.ask("POST", "/v1/optin-records", body, self.header)
