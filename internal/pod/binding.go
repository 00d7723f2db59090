package pod

import "time"

// For BindingGrace after a pod was bound to this node, a refusal of the apiserver does not count
// yet. Its authorizer and its admission learn of the binding through watches of their own, some
// milliseconds later than the node. Retry after BindingRetry, which doubles.
const (
	BindingGrace = 2 * time.Second
	BindingRetry = 50 * time.Millisecond
)
