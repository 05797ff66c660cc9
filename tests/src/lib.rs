pub mod jaeger;
