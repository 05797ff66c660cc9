// The CustomResourceDefinitions by which the tests validate deploy/pipelines (Argo Rollouts, Flagger) and deploy/examples (Argo CD, Flux), each
// from its Go module by name.
// Nothing of them is built.
module epitaph/pipelines

go 1.26.0

require (
	github.com/argoproj/argo-cd/v3 v3.1.9
	github.com/argoproj/argo-rollouts v1.8.3
	github.com/fluxcd/flagger v1.41.0
	github.com/fluxcd/helm-controller v1.4.3
	github.com/fluxcd/source-controller v1.7.3
)
