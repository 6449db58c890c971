"""The documents as a site that works without a network, with references made from the code.

`harness.site.source` collects the pages and makes their links work there, `harness.site.commands`,
`harness.site.messages` and `harness.site.modules` write the references.  zensical makes HTML of it.
"""
