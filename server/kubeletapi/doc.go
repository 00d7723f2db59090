// Package kubeletapi guards the kubelet's API on port 10250. It establishes who sent a request
// and whether an apiserver allows it.
//
//	request ──► Guard ──► handler
//	              │ TokenReview, SubjectAccessReview (cached)
//	              ▼
//	          apiserver
//
// It owns authentication (client certificates, bearer tokens, anonymous), authorization with
// the kubelet's attributes (pkg/kubelet/server/auth.go; KEP-2862 for the fine-grained ones) and
// how long the apiserver's answers stay valid. Package server owns the content.
//
// Reviews of unknown tokens are limited in rate for each address, and in number at a time. A
// token that the apiserver accepted before has a lane of its own, which unauthenticated
// clients cannot use up.
//
// If the apiserver does not answer, the request is refused.
package kubeletapi
