"""What the tests of every tier may use."""

pytest_plugins = ["tests.servers.fixtures", "tests.servers.journals"]
