"""Sync client: makes a database follow a subscription, one table per dataset (D11).

`plan` decides, `download` fetches, `loop` performs, a target of `targets` holds the rows.
"""
