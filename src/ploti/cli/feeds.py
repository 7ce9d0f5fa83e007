"""`ploti feeds ...`: laid out as the API's resources are."""

from cyclopts import App

app = App(name="feeds", help="Datasets, their versions, and subscriptions.")
app.command("ploti.cli.datasets:app", name="datasets", help="Datasets and their versions.")
app.command("ploti.cli.attachments:app", name="attachments", help="Files delivered with a dataset, like its documents.")
app.command("ploti.cli.subscriptions:app", name="subscriptions", help="The datasets that your workspace follows.")
