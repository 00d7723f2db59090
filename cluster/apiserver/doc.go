// Package apiserver is podd's connection to an apiserver. It has the kubeconfig, one HTTP
// client, and the calls that a node makes, each a method of Client.
//
// It owns how podd authenticates, how it picks up new credentials while it runs, which encoding
// it speaks (protobuf) and the limits on its requests. Other packages decide what to ask and
// when: podconfig/apiserver follows the pods, status uploads their statuses, nodestatus
// maintains the Node and its Lease.
//
// client-go's typed clientset would add 33 MB to the binary and 15 MB to podd's memory for
// groups that no node uses. The clients are therefore bare REST clients of the few groups that
// podd uses.
//
// Errors come from the apiserver (k8s.io/apimachinery/pkg/api/errors tells them apart) or from
// the network.
package apiserver
