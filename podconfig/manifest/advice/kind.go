package advice

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"podd/internal/pod"
	"podd/internal/strictyaml"
	"podd/internal/suggest"
)

// kinds are what a manifest may hold; pod.APIVersion has the version of each.
var kinds = []string{"Pod", "PodList", "List", "ConfigMap", "ConfigMapList", "Secret", "SecretList",
	"PersistentVolume", "PersistentVolumeList", "PersistentVolumeClaim", "PersistentVolumeClaimList", "CSIDriver", "CSIDriverList"}

// workloads are kinds that hold a pod template, and where.
var workloads = map[string]string{
	"Deployment": "spec.template", "ReplicaSet": "spec.template", "StatefulSet": "spec.template", "DaemonSet": "spec.template",
	"ReplicationController": "spec.template", "Job": "spec.template", "CronJob": "spec.jobTemplate.spec.template", "PodTemplate": "template",
}

// ignoredKinds are kinds that stand beside pods in many files and that pods on one node do well
// without: their apiVersion, and what there is instead.
var ignoredKinds = map[string]struct{ apiVersion, hint string }{
	"Namespace":          {"v1", "a namespace is only part of a pod's name here and needs no object; remove the document, or leave it"},
	"Service":            {"v1", "reach the pod at its own IP address, or at a hostPort of its containers; remove the document, or leave it"},
	"ServiceAccount":     {"v1", noAPI},
	"Role":               {rbac, noAPI},
	"RoleBinding":        {rbac, noAPI},
	"ClusterRole":        {rbac, noAPI},
	"ClusterRoleBinding": {rbac, noAPI},
	"StorageClass":       {"storage.k8s.io/v1", "a claim finds a PersistentVolume of the manifests by its storageClassName alone; remove the document, or leave it"},
}

const (
	rbac  = "rbac.authorization.k8s.io/v1"
	noAPI = "without an apiserver there is nobody to whom a pod could show its account; remove the document, or leave it"
)

// Header is what determines the kind of a document; nil for what is not there.
type Header struct{ APIVersion, Kind *yaml.Node }

// HeaderOf returns the header of a document.
func HeaderOf(n *yaml.Node) Header {
	return Header{APIVersion: strictyaml.Lookup(n, "apiVersion"), Kind: strictyaml.Lookup(n, "kind")}
}

// Scalar is the value of a scalar, "" for anything else.
func Scalar(n *yaml.Node) string {
	if n == nil || n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
		return ""
	}
	return n.Value
}

// plural is more than one of a kind.
func plural(kind string) string {
	if strings.HasSuffix(kind, "s") {
		return kind + "es"
	}
	return kind + "s"
}

// IgnoredKind is the fault of a document of an ignored kind; nil for any other.
func IgnoredKind(n *yaml.Node) *Fault {
	h := HeaderOf(n)
	if h.Kind == nil {
		return nil
	}
	kind := Scalar(h.Kind)
	of, known := ignoredKinds[kind]
	if !known || Scalar(h.APIVersion) != of.apiVersion {
		return nil
	}
	return &Fault{Line: h.Kind.Line, Field: "kind", Message: "podd has no " + plural(kind) + ": the document is ignored", Hint: of.hint}
}

const begin = "a manifest begins with apiVersion: v1 and kind: Pod"

// NoObject is the fault of a document that is no object.
func NoObject(n *yaml.Node) Fault {
	f := Fault{Line: n.Line, Message: "the document is " + Describe(n) + ", not a Pod", Hint: begin}
	if !strings.HasPrefix(n.Value, "<") { // HTML of a server
		f.MaskedMessage, f.MaskedHint = "the document is "+DescribeType(n)+", not a Pod", begin
	}
	return f
}

// CheckHeader returns what is wrong with a document's kind or apiVersion.
func CheckHeader(n *yaml.Node) *Fault {
	if n.Kind != yaml.MappingNode {
		return &Fault{Line: n.Line, Message: "got " + Describe(n) + ", want a Pod", Hint: begin,
			MaskedMessage: "got " + DescribeType(n) + ", want a Pod", MaskedHint: begin}
	}
	h := HeaderOf(n)
	if f := checkKind(n, h); f != nil {
		return f
	}
	want := pod.APIVersion(strings.TrimSuffix(h.Kind.Value, "List"))
	switch version := Scalar(h.APIVersion); version {
	case want:
		return nil
	case "":
		f := Fault{Line: n.Line, Field: "apiVersion", Message: "apiVersion is missing", Hint: "write apiVersion: " + want + " above kind: " + h.Kind.Value}
		if key, _ := strictyaml.Field(n, "kind"); h.APIVersion == nil && key != nil {
			f = f.withEdit(insertBefore(n, key, "apiVersion: "+want, "write %s above kind: "+h.Kind.Value))
		}
		return &f
	default:
		f := Fault{Line: h.APIVersion.Line, Field: "apiVersion", Message: fmt.Sprintf("there is no kind %q in version %q", h.Kind.Value, Shorten(version))}
		f = f.withEdit(replace(h.APIVersion, want, "write apiVersion: %s"))
		return &f
	}
}

func checkKind(n *yaml.Node, h Header) *Fault {
	if h.Kind == nil || Scalar(h.Kind) == "" {
		f := Fault{Line: n.Line, Field: "kind", Message: "kind is missing", Hint: begin}
		switch {
		case strictyaml.Lookup(n, "services") != nil:
			f.Message, f.Hint = "this is a docker-compose file, not a Pod", "podd runs Kubernetes Pods: write each service as a container of a Pod"
		case strictyaml.Lookup(n, "Kind") != nil:
			key, _ := strictyaml.Field(strictyaml.Resolve(n), "Kind")
			f = f.withEdit(replace(key, "kind", `field names are case-sensitive: write "%s", not "Kind"`))
		}
		return &f
	}
	kind := Scalar(h.Kind)
	if slices.Contains(kinds, kind) {
		return nil
	}
	f := Fault{Line: h.Kind.Line, Field: "kind", Message: fmt.Sprintf("podd cannot run the kind %q", Shorten(kind)),
		Hint: "podd runs Pods on one node; other kinds need a cluster"}
	if meant := suggest.Closest(kind, kinds); meant != "" {
		f = f.withEdit(replace(h.Kind, meant, didYouMean(meant).format))
	} else if template := workloads[kind]; template != "" {
		f.Hint = "a " + kind + " needs a cluster's controllers; write its " + template + " as a Pod: apiVersion: v1, kind: Pod, with a metadata.name"
	}
	return &f
}
