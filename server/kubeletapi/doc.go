// Package kubeletapi guards the kubelet's API on port 10250: who a request is from, and
// whether an apiserver lets them do that.
//
//	request ──► Guard ──► handler
//	              │ TokenReview, SubjectAccessReview (cached)
//	              ▼
//	          apiserver
//
// It owns authentication (client certificates, bearer tokens, anonymous), authorization with
// the kubelet's attributes (pkg/kubelet/server/auth.go; KEP-2862 for the fine-grained ones)
// and how long answers of the apiserver serve. What is served is package server's.
//
// Unknown tokens are reviewed at a limited rate for each address, and few at a time. A token
// that the apiserver accepted before has a lane of its own, which strangers cannot use up.
//
// An apiserver that does not answer is a refusal: nothing is served on its account.
package kubeletapi
