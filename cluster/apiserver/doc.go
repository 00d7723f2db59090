// Package apiserver is podd's connection to an apiserver: the kubeconfig, one HTTP
// client, and the calls that a node makes, each a method of Client.
//
// It owns how podd authenticates, taking up new credentials while it runs, which encoding it speaks (protobuf) and the limits
// on its requests. It leaves to others what is to be asked and when: podconfig/apiserver
// follows the pods, status uploads their statuses, nodestatus maintains the Node and its
// Lease.
//
// The typed clientset of client-go would add 33 MB to the binary and 15 MB to podd's
// memory for groups that no node uses, so the clients are bare REST clients of the few
// groups that it does use.
//
// Errors are those of the apiserver (k8s.io/apimachinery/pkg/api/errors tells them
// apart), and otherwise of the network.
package apiserver
