"""What the executables are made of: `deploy/octopi-node.spec` asks these modules.

`harness.executables.contents` says which of the installed distributions belong to them,
`harness.executables.licenses` collects the licences of what they contain.
"""
