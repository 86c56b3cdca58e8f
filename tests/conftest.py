"""Eight host devices for every test, set before JAX is imported; x64 stays at its default."""

import os

import hypothesis

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
os.environ.setdefault("JAX_PLATFORMS", "cpu")

# A busy machine is no fault of the code: no test asserts a time, that of drawing an example neither.
hypothesis.settings.register_profile("tests", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("tests")
