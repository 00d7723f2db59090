// Package podapi is podd's one authority on what makes a Pod, ConfigMap or Secret valid. It
// links upstream's own defaulting and validation as a library, so podd's verdict on a
// manifest is the apiserver's, to the word.
//
// It is the only package of podd that may import k8s.io/kubernetes. internal/deptest guards
// that, and names the packages of k8s.io/kubernetes that may be in podd's binary. Other
// packages never see upstream's internal types: values go in and out as k8s.io/api/core/v1.
//
// All functions are safe for concurrent use and keep no reference to their arguments.
package podapi
