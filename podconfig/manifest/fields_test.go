package manifest

import (
	"go/ast"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"golang.org/x/tools/go/packages"
	v1 "k8s.io/api/core/v1"

	"podd/internal/features"
	"podd/internal/podapi"
)

// fate is what becomes of a field of a pod's spec.
type fate string

const (
	honoured fate = "honoured" // some package that runs pods reads it
	refused  fate = "refused"  // an error says so
	// Nobody on a node acts on it, upstream's kubelet neither: it is for the
	// scheduler, for the apiserver's admission or for another system's nodes.
	others fate = "others'"
)

// podFates has every field of a pod's spec. A field that a new version of the
// API brings fails the test until somebody decides about it.
var podFates = map[reflect.Type]map[string]fate{
	reflect.TypeFor[v1.PodSpec](): {
		"Volumes": honoured, "Containers": honoured, "RestartPolicy": honoured, "TerminationGracePeriodSeconds": honoured,
		"DNSPolicy": honoured, "NodeName": honoured, "HostNetwork": honoured, "HostPID": honoured, "HostIPC": honoured,
		"ShareProcessNamespace": honoured, "SecurityContext": honoured, "Hostname": honoured, "Subdomain": honoured,
		"HostAliases": honoured, "Priority": honoured, "DNSConfig": honoured, "SetHostnameAsFQDN": honoured,
		"HostnameOverride": honoured,
		"InitContainers":   honoured, "ActiveDeadlineSeconds": honoured,
		"ReadinessGates": honoured, "RuntimeClassName": honoured, "Overhead": honoured, "OS": honoured,
		"HostUsers": honoured, "Resources": honoured, "ImagePullSecrets": honoured,
		"ServiceAccountName": refused, "ResourceClaims": refused,
		// Upstream's validation forbids them in a new pod.
		"EphemeralContainers":      refused,
		"DeprecatedServiceAccount": refused, // the same under its old name
		// Without an apiserver there is no token and no service.
		"AutomountServiceAccountToken": others, "EnableServiceLinks": others,
		// On admission to the node.
		"NodeSelector": honoured, "Affinity": honoured, "Tolerations": honoured,
		// Who writes a manifest for a node has chosen the node.
		"SchedulerName": others, "TopologySpreadConstraints": others,
		"SchedulingGates": others, "EvictionResponders": others, "SchedulingGroup": others, "PreemptionPolicy": others, "PriorityClassName": others,
	},
	reflect.TypeFor[v1.Container](): {
		"Name": honoured, "Image": honoured, "Command": honoured, "Args": honoured, "WorkingDir": honoured, "Ports": honoured,
		"Env": honoured, "Resources": honoured, "VolumeMounts": honoured, "TerminationMessagePath": honoured,
		"TerminationMessagePolicy": honoured, "ImagePullPolicy": honoured, "SecurityContext": honoured, "Stdin": honoured,
		"StdinOnce": honoured, "TTY": honoured,
		"RestartPolicy": honoured, "RestartPolicyRules": honoured,
		"LivenessProbe": honoured, "ReadinessProbe": honoured, "StartupProbe": honoured, "Lifecycle": honoured,
		"EnvFrom": honoured, "VolumeDevices": honoured,
		"ResizePolicy": honoured,
	},
	reflect.TypeFor[v1.PodSecurityContext](): {
		"SELinuxOptions": honoured, "RunAsUser": honoured, "RunAsGroup": honoured, "RunAsNonRoot": honoured,
		"SupplementalGroups": honoured, "SupplementalGroupsPolicy": honoured, "FSGroup": honoured, "Sysctls": honoured,
		"SeccompProfile": honoured, "AppArmorProfile": honoured,
		"FSGroupChangePolicy": honoured, "SELinuxChangePolicy": others,
		"WindowsOptions": others,
	},
	reflect.TypeFor[v1.SecurityContext](): {
		"Capabilities": honoured, "Privileged": honoured, "SELinuxOptions": honoured, "RunAsUser": honoured, "RunAsGroup": honoured,
		"RunAsNonRoot": honoured, "ReadOnlyRootFilesystem": honoured, "AllowPrivilegeEscalation": honoured, "ProcMount": honoured,
		"SeccompProfile": honoured, "AppArmorProfile": honoured,
		"WindowsOptions": others,
	},
	reflect.TypeFor[v1.VolumeMount](): {
		"Name": honoured, "ReadOnly": honoured, "RecursiveReadOnly": honoured, "MountPath": honoured, "SubPath": honoured,
		"MountPropagation": honoured, "SubPathExpr": honoured, "BindMountOptions": refused,
	},
	reflect.TypeFor[v1.EnvVarSource](): {
		"FieldRef": honoured, "ResourceFieldRef": honoured, "ConfigMapKeyRef": honoured, "SecretKeyRef": honoured, "FileKeyRef": honoured,
	},
}

// readWithin are fields that a function of Kubernetes' own libraries reads for
// podd.
var readWithin = map[string]string{
	"NodeSelector": nodeAffinity, "Affinity": nodeAffinity,
}

const nodeAffinity = "k8s.io/component-helpers/scheduling/corev1/nodeaffinity.GetRequiredNodeAffinity"

// TestEveryFieldOfAPodIsHonouredOrRejectedOrUselessOnANode: no field is skipped
// in silence (containers/podman#12756: nobody could tell which fields of the
// YAML work, and probes, hooks and fieldRefs were dropped without a word).
func TestEveryFieldOfAPodIsHonouredOrRejectedOrUselessOnANode(t *testing.T) {
	used := usedBy(t, "agent", "agent/plan", "cri", "cri/spec", "podenv", "podfs", "volumes", "images", "cgroup", "admission", "prober", "hooks", "userns", "status", "internal/pod", "internal/httpget")
	for owner, fates := range podFates {
		for f := range owner.Fields() {
			what := owner.Name() + "." + f.Name
			got, decided := fates[f.Name]
			read := used[owner.PkgPath()+"."+what]
			if by := readWithin[f.Name]; by != "" {
				read = used[by]
			}
			switch {
			case !decided:
				t.Errorf("%s is new: honour it, refuse it in unsupported.go, or say why it is nobody's on a node", what)
			case got == honoured && !read:
				t.Errorf("%s is called honoured, but no package that runs pods reads it", what)
			case got == refused && len(complaints(owner, f)) == 0:
				t.Errorf("%s is called refused, but a pod that has it is accepted", what)
			case got != refused && owner != reflect.TypeFor[v1.EnvVarSource]() && len(complaints(owner, f)) > 0:
				t.Errorf("%s is called %s, but a pod that has it is refused: %s", what, got, complaints(owner, f))
			}
		}
		for name := range fates {
			if _, ok := owner.FieldByName(name); !ok {
				t.Errorf("%s.%s is no field any more", owner.Name(), name)
			}
		}
	}
}

// TestEveryKindOfVolumeIsHonouredOrRejected is the same for volumes.
func TestEveryKindOfVolumeIsHonouredOrRejected(t *testing.T) {
	for f := range reflect.TypeFor[v1.VolumeSource]().Fields() {
		p := &v1.Pod{Spec: v1.PodSpec{Volumes: []v1.Volume{{Name: "x"}}}}
		reflect.ValueOf(&p.Spec.Volumes[0].VolumeSource).Elem().FieldByName(f.Name).Set(reflect.New(f.Type.Elem()))
		works := slices.Contains([]string{"HostPath", "EmptyDir", "ConfigMap", "Secret", "DownwardAPI", "Projected", "Image", "NFS", "PersistentVolumeClaim", "Ephemeral", "CSI"}, f.Name)
		if got := refusals(p); works != (len(got) == 0) {
			t.Errorf("a volume of kind %s: got complaints %q", f.Name, got)
		}
	}
}

// complaints are about a pod in which that field alone is set.
func complaints(owner reflect.Type, f reflect.StructField) []string {
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{}}}}
	value := reflect.New(owner).Elem()
	set(value.FieldByName(f.Name), 0)
	c := &p.Spec.Containers[0]
	switch v := value.Addr().Interface().(type) {
	case *v1.PodSpec:
		if f.Name != "Containers" {
			v.Containers = p.Spec.Containers
		}
		p.Spec = *v
		p.Spec.Volumes = nil // a kind at a time, in the other test
		if len(v.InitContainers) > 0 {
			p.Spec.InitContainers = make([]v1.Container, 1) // a field at a time, like the others
		}
		if len(v.EphemeralContainers) > 0 {
			p.Spec.EphemeralContainers = make([]v1.EphemeralContainer, 1)
		}
	case *v1.Container:
		*c = *v
		for i := range c.Env {
			c.Env[i].ValueFrom = nil
		}
		for i := range c.VolumeMounts {
			c.VolumeMounts[i].BindMountOptions = nil
		}
		c.Resources.Claims = nil
	case *v1.PodSecurityContext:
		p.Spec.SecurityContext = v
	case *v1.SecurityContext:
		c.SecurityContext = v
	case *v1.VolumeMount:
		c.VolumeMounts = []v1.VolumeMount{*v}
	case *v1.EnvVarSource:
		c.Env = []v1.EnvVar{{ValueFrom: v}}
	}
	if f.Name == "Containers" {
		p.Spec.Containers = []v1.Container{{Name: "x"}}
	}
	return refusals(p)
}

func refusals(p *v1.Pod) []string {
	var out []string
	for _, u := range unsupportedFields(p, features.Set{}) {
		out = append(out, u.path+": "+u.message)
	}
	for _, r := range apiReferences(p) {
		out = append(out, r.path+": "+r.resource)
	}
	if len(p.Spec.EphemeralContainers) > 0 { // upstream's own refusal
		for _, e := range podapi.Validate(p) {
			if e.Field == "spec.ephemeralContainers" {
				out = append(out, e.Error())
			}
		}
	}
	return out
}

// set gives a value and what it holds, a few levels down, something that is
// not the zero value; of false and nil, where false is what podd cannot do,
// hostUsers is the one.
func set(v reflect.Value, depth int) {
	if depth > 3 {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		if v.Elem().Kind() != reflect.Bool {
			set(v.Elem(), depth+1)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				set(v.Field(i), depth+1)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		set(v.Index(0), depth+1)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		set(key, depth+1)
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64:
		v.SetInt(1)
	}
}

// usedBy are the functions that some packages name and the fields of structs that
// they read, as the type checker sees them: "path.Func", "path.Struct.Field". What
// is only assigned to is not read.
func usedBy(t *testing.T, dirs ...string) map[string]bool {
	t.Helper()
	var patterns []string
	for _, dir := range dirs {
		patterns = append(patterns, "podd/"+dir)
		// The cache of test results knows only of files that the test itself looks at.
		files, err := filepath.Glob(filepath.Join("../..", dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if _, err := os.Stat(f); err != nil {
				t.Fatal(err)
			}
		}
	}
	loaded, err := packages.Load(&packages.Config{Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles |
		packages.NeedImports | packages.NeedExportFile | packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesInfo}, patterns...)
	if err != nil {
		t.Fatal(err)
	}
	if len(loaded) != len(dirs) {
		t.Fatalf("got %d packages, want %d", len(loaded), len(dirs))
	}
	used := map[string]bool{}
	for _, p := range loaded {
		for _, err := range p.Errors {
			t.Fatalf("load %s: %v", p.PkgPath, err)
		}
		for _, o := range p.TypesInfo.Uses {
			if f, ok := o.(*types.Func); ok && f.Pkg() != nil {
				used[f.Pkg().Path()+"."+f.Name()] = true
			}
		}
		assigned := map[ast.Expr]bool{}
		for _, file := range p.Syntax {
			ast.Inspect(file, func(n ast.Node) bool {
				if a, ok := n.(*ast.AssignStmt); ok && (a.Tok == token.ASSIGN || a.Tok == token.DEFINE) {
					for _, left := range a.Lhs {
						assigned[left] = true
					}
				}
				return true
			})
		}
		for expr, selection := range p.TypesInfo.Selections {
			if selection.Kind() == types.FieldVal && !assigned[expr] {
				for _, field := range passed(selection) {
					used[field] = true
				}
			}
		}
	}
	return used
}

// passed are all fields that a selection passes, embedded ones included.
func passed(s *types.Selection) (fields []string) {
	at := s.Recv()
	for _, i := range s.Index() {
		if p, ok := at.Underlying().(*types.Pointer); ok {
			at = p.Elem()
		}
		owner, _ := types.Unalias(at).(*types.Named)
		f := at.Underlying().(*types.Struct).Field(i)
		if owner != nil && owner.Obj().Pkg() != nil {
			fields = append(fields, owner.Obj().Pkg().Path()+"."+owner.Obj().Name()+"."+f.Name())
		}
		at = f.Type()
	}
	return fields
}

// TestAFieldThatIsOnlyNamedOrSetIsNotRead: the look itself can fail.
func TestAFieldThatIsOnlyNamedOrSetIsNotRead(t *testing.T) {
	used := usedBy(t, "hooks")
	for name, want := range map[string]bool{
		"k8s.io/api/core/v1.LifecycleHandler.HTTPGet": true,
		"k8s.io/api/core/v1.PodSpec.SchedulerName":    false, // nobody's on a node
		"k8s.io/api/core/v1.PodSpec.DNSPolicy":        false, // another package's
	} {
		if used[name] != want {
			t.Errorf("%s: got read %v, want %v", name, used[name], want)
		}
	}
}
