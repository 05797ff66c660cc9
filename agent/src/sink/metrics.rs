//! Metrics by OpenTelemetry, read at `/metrics` and by OTLP.
