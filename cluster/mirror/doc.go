// Package mirror has an apiserver show the pods of a node that do not come from it, each as a
// mirror pod: a Pod of the same name and specification, with the annotation
// kubernetes.io/config.mirror and the Node as its owner.
//
//	PodConfig ──static pods──► Manager ◄──the node's pods── apiserver
//	                              └──create, delete──► apiserver
//
// A mirror pod is what people and controllers see; nothing runs because of it. Whoever
// deletes it gets a new one; it goes when its static pod has gone from the node, also when that
// was replaced by another of its name. Its status is uploaded like that of any other pod
// (status.Uploader).
//
// An apiserver refuses a mirror pod that refers to its objects (NodeRestriction): a static
// pod with ConfigMaps or Secrets of manifests runs without being shown.
package mirror
