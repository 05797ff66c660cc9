// The CustomResourceDefinitions by which the tests validate deploy/pipelines: Argo Rollouts and Flagger, each from its Go module by name.
// Nothing of them is built.
module epitaph/pipelines

go 1.26.0

require (
	github.com/argoproj/argo-rollouts v1.8.3
	github.com/fluxcd/flagger v1.41.0
)
