package manifest

import (
	"fmt"
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

// without are kinds that stand beside pods in many files and that pods on one node do well
// without: their apiVersion, and what there is instead.
var without = map[string]struct{ apiVersion, hint string }{
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

// plural is more than one of a kind.
func plural(kind string) string {
	if strings.HasSuffix(kind, "s") {
		return kind + "es"
	}
	return kind + "s"
}

// needless is the word about a document of such a kind; nil for any other.
func needless(n *yaml.Node) *fault {
	h := headerOf(n)
	if h.kind == nil {
		return nil
	}
	kind := scalar(h.kind)
	of, known := without[kind]
	if !known || scalar(h.apiVersion) != of.apiVersion {
		return nil
	}
	return &fault{line: h.kind.Line, field: "kind", message: "podd has no " + plural(kind) + ": the document is ignored", hint: of.hint}
}

const begin = "a manifest begins with apiVersion: v1 and kind: Pod"

// checkHeader returns what is wrong with a document's kind or apiVersion.
func checkHeader(n *yaml.Node) *fault {
	if n.Kind != yaml.MappingNode {
		return &fault{line: n.Line, message: "got " + describe(n) + ", want a Pod", hint: begin,
			plain: "got " + formOf(n) + ", want a Pod", plainHint: begin}
	}
	h := headerOf(n)
	if f := checkKind(n, h); f != nil {
		return f
	}
	want := pod.APIVersion(strings.TrimSuffix(h.kind.Value, "List"))
	switch version := scalar(h.apiVersion); version {
	case want:
		return nil
	case "":
		f := fault{line: n.Line, field: "apiVersion", message: "apiVersion is missing", hint: "write apiVersion: " + want + " above kind: " + h.kind.Value}
		if key, _ := strictyaml.Field(n, "kind"); h.apiVersion == nil && key != nil {
			f = f.by(beside(n, key, "apiVersion: "+want, "write %s above kind: "+h.kind.Value))
		}
		return &f
	default:
		f := fault{line: h.apiVersion.Line, field: "apiVersion", message: fmt.Sprintf("there is no kind %q in version %q", h.kind.Value, shorten(version))}
		f = f.by(replace(h.apiVersion, want, "write apiVersion: %s"))
		return &f
	}
}

func checkKind(n *yaml.Node, h header) *fault {
	if h.kind == nil || scalar(h.kind) == "" {
		f := fault{line: n.Line, field: "kind", message: "kind is missing", hint: begin}
		switch {
		case strictyaml.Lookup(n, "services") != nil:
			f.message, f.hint = "this is a docker-compose file, not a Pod", "podd runs Kubernetes Pods: write each service as a container of a Pod"
		case strictyaml.Lookup(n, "Kind") != nil:
			key, _ := strictyaml.Field(strictyaml.Resolve(n), "Kind")
			f = f.by(replace(key, "kind", `field names are case-sensitive: write "%s", not "Kind"`))
		}
		return &f
	}
	kind := scalar(h.kind)
	for _, k := range kinds {
		if k == kind {
			return nil
		}
	}
	f := fault{line: h.kind.Line, field: "kind", message: fmt.Sprintf("podd cannot run the kind %q", shorten(kind)),
		hint: "podd runs Pods on one node; other kinds need a cluster"}
	if meant := suggest.Name(kind, kinds); meant != "" {
		f = f.by(replace(h.kind, meant, didYouMean(meant).words))
	} else if template := workloads[kind]; template != "" {
		f.hint = "a " + kind + " needs a cluster's controllers; write its " + template + " as a Pod: apiVersion: v1, kind: Pod, with a metadata.name"
	}
	return &f
}
