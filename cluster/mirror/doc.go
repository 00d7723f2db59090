// Package mirror shows a node's pods from sources other than the apiserver in that apiserver,
// each as a mirror pod: a Pod of the same name and specification, with the annotation
// kubernetes.io/config.mirror and the Node as its owner.
//
//	PodConfig ──static pods──► Manager ◄──the node's pods── apiserver
//	                              └──create, delete──► apiserver
//
// A mirror pod is only for people and controllers to see; nothing runs because of it. If
// somebody deletes it, podd creates a new one. podd deletes it once its static pod has gone
// from the node, also when another pod of that name replaced the static pod. Its status is
// uploaded like that of any other pod (status.Uploader).
//
// An apiserver refuses a mirror pod that refers to the apiserver's objects (NodeRestriction). A
// static pod with ConfigMaps or Secrets of manifests therefore runs without being shown.
package mirror
