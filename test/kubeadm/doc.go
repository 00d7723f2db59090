// Package kubeadm tests podd in the kubelet's place under upstream's kubeadm: one podd is the
// node of the control plane, whose programs are static pods on it, and another one joins. Each
// has namespaces of its own, between which there is a cable: nothing of this machine is changed,
// and what a node's files and ports are called is what they are called on a real one.
//
// There is no systemd in them: where kubeadm would start the service kubelet, a test does, with
// the command line of upstream's drop-in 10-kubeadm.conf.
//
// In such namespaces, with cgroups of their own besides, upstream's suite of a node is played, too,
// which starts podd itself (make node-suite). nodesuite.txt lists what cannot pass here.
package kubeadm
