package advice

import (
	"fmt"
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validationHint returns a remedy for those of the apiserver's errors that do not suggest
// one; "" for the rest.
func validationHint(e *field.Error, p *v1.Pod) string {
	path, value := withoutIndexes(e.Field), badValueText(e)
	last := withoutIndexes(e.Field[strings.LastIndexByte(e.Field, '.')+1:])
	switch {
	case strings.Contains(e.Detail, "init containers without restartPolicy=Always"):
		return "write restartPolicy: Always to run it as a sidecar, or remove the field"
	case e.Type == field.ErrorTypeRequired && strings.HasSuffix(path, "Probe"):
		return "specify how to probe: exec, httpGet, tcpSocket or grpc"
	case e.Type == field.ErrorTypeRequired && strings.HasPrefix(path[strings.LastIndexByte(path, '.')+1:], "p") && strings.Contains(path, ".lifecycle."):
		return "specify what to do: exec, httpGet or sleep"
	case strings.HasSuffix(path, ".stopSignal") && e.Type == field.ErrorTypeForbidden:
		return "write os: {name: linux} under spec: the valid signals depend on it"
	case strings.HasSuffix(path, ".restartPolicy") && e.Type == field.ErrorTypeRequired:
		return "write restartPolicy: Never (or Always, OnFailure) as well, for exit codes that no rule covers"
	case strings.HasSuffix(path, ".sleep") && strings.Contains(e.Detail, "terminationGracePeriodSeconds"):
		return "raise spec.terminationGracePeriodSeconds, or sleep less: the hook counts against the pod's grace period"
	case e.Type == field.ErrorTypeRequired:
		return requiredHint(path)
	case strings.Contains(e.Detail, "conflicting duplicate paths"):
		return "two of its sources write the same file: give each key another path with items"
	case e.Type == field.ErrorTypeNotSupported && last == "stopSignal":
		return "write it as SIGTERM, SIGQUIT, SIGUSR1, SIGRTMIN+3 …"
	case e.Type == field.ErrorTypeNotFound && strings.Contains(e.Field, ".volumeMounts["):
		return volumeHint(value, p)
	case e.Type == field.ErrorTypeDuplicate && last == "hostPort":
		return "each port of the node can be used only once; choose another hostPort"
	case e.Type == field.ErrorTypeDuplicate && last == "name":
		return "give each its own name"
	case e.Type == field.ErrorTypeDuplicate && last == "mountPath", e.Field != "" && last == "mountPath" && strings.Contains(e.Detail, "must be unique"):
		return "only one volume can be mounted at a path"
	case isNameError(e) && isPlaceholder(value):
		return fillHint
	case last == "procMount":
		return "write hostUsers: false under spec, or remove procMount"
	case strings.HasSuffix(e.Field, "resources.requests") && strings.Contains(e.Detail, "limit"):
		return "raise the limit or lower the request"
	}
	return ""
}

// badValueText is the invalid value if it is a string, or points to one; else "".
func badValueText(e *field.Error) string {
	if v := reflect.ValueOf(e.BadValue); v.Kind() == reflect.Pointer && !v.IsNil() && v.Elem().Kind() == reflect.String {
		return v.Elem().String()
	}
	return BadText(e)
}

// BadText is the invalid value if it is a string of any type, else "".
func BadText(e *field.Error) string {
	if v := reflect.ValueOf(e.BadValue); v.Kind() == reflect.String {
		return v.String()
	}
	return ""
}

// required says what to write into a missing field, by the end of its path without
// indexes (^ is where the path begins). The first that fits counts.
var required = []struct{ path, hint string }{
	{"^metadata.name", "write metadata: name: web (a static pod needs a name; generateName works on an apiserver only)"},
	{"^spec.containers", `a pod needs at least one container: under spec.containers write "- name: web" and "image: …"`},
	{"^spec.containers.image", "write image: registry/name:tag, or the name of an image in podd's image directory"},
	{"^spec.containers.name", "each container needs a name, for example name: web"},
	{"^spec.containers.ports.containerPort", "write containerPort: 80, the port that the program listens on"},
	{"^spec.containers.volumeMounts.name", "name one of spec.volumes"},
	{"^spec.containers.volumeMounts.mountPath", "write mountPath: /data, where the container sees the volume"},
	{"^spec.volumes.image.reference", "write registry/name:tag"},
	{"^spec.volumes.name", "each volume needs a name, which volumeMounts refer to, for example name: data"},
	{"^spec.volumes", "write what the volume is, for example emptyDir: {} or hostPath: {path: /srv/data}"},
	{".items.path", "write path: settings.ini, the file that the key becomes in the volume"},
	{".items.key", "write key: settings.ini, one of the object's keys"},
	{"onfigMap.name", needsConfigMap}, {".configMapRef.name", needsConfigMap}, {".configMapKeyRef.name", needsConfigMap},
	{".secret.name", needsSecret}, {".secretRef.name", needsSecret}, {".secretKeyRef.name", needsSecret},
	{".secret.secretName", "write secretName: password, the name of a Secret of the pod's namespace"},
	{"KeyRef.key", "write key: colour, one of the object's keys"},
}

const (
	needsConfigMap = "write name: settings, the name of a ConfigMap of the pod's namespace"
	needsSecret    = "write name: password, the name of a Secret of the pod's namespace"
)

// requiredHint is the hint of required at a path, "" for none.
func requiredHint(path string) string {
	for _, r := range required {
		if strings.HasSuffix("^"+path, r.path) {
			return r.hint
		}
	}
	return ""
}

// volumeHint helps with a mount of a volume that is not there.
func volumeHint(name string, p *v1.Pod) string {
	if len(p.Spec.Volumes) == 0 {
		return fmt.Sprintf("spec.volumes is empty; add a volume named %q there", name)
	}
	names := volumeNames(p)
	if len(names) == 0 {
		return "no volume of spec.volumes has a name"
	}
	return "spec.volumes has: " + strings.Join(names, ", ")
}

// volumeNames are those of the pod's volumes that have one.
func volumeNames(p *v1.Pod) []string {
	var names []string
	for i := range p.Spec.Volumes {
		if name := p.Spec.Volumes[i].Name; name != "" {
			names = append(names, name)
		}
	}
	return names
}

// quoted returns the quoted strings, as errors list supported values.
func quoted(s string) []string {
	var out []string
	for i, part := range strings.Split(s, `"`) {
		if i%2 == 1 {
			out = append(out, part)
		}
	}
	return out
}
