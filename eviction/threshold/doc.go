// Package threshold is the language of node-pressure eviction: the kubelet's signals, their
// meaning for resources and conditions of the node, and thresholds as evictionHard and its
// companions write them
// (https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/). It is
// pure. Package config checks with it, node/capacity subtracts with it, and eviction decides
// with it.
package threshold
