// Package podapi is podd's one authority on what a valid Pod, ConfigMap or Secret
// is: upstream's own defaulting and validation, linked as a library, so that podd's
// verdict on a manifest is the apiserver's, to the word.
//
// It is the only package of podd that may import k8s.io/kubernetes;
// internal/deptest guards that, and names the packages of it that may be in
// podd's binary. Nobody outside sees upstream's internal types: values go in
// and out as k8s.io/api/core/v1.
//
// All functions are safe for concurrent use and keep nothing of what they are
// given.
package podapi
