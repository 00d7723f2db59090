package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sort"

	"github.com/spf13/pflag"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"podd/internal/suggest"
)

// withoutEffect are flags that kubeadm and its templates pass or passed, and
// that mean nothing to a node agent that has neither dockershim nor a pause
// image of its own. They are accepted with a warning under every name.
var withoutEffect = map[string]string{
	"pod-infra-container-image": "the sandbox image is the runtime's own setting",
	"container-runtime":         "every runtime is reached through CRI",
	"network-plugin":            "the runtime calls CNI itself",
	"cni-bin-dir":               "the runtime knows its CNI plugins",
	"cni-conf-dir":              "the runtime knows its CNI configuration",
	"cni-cache-dir":             "the runtime keeps the CNI cache",
	"allow-privileged":          "privileged containers are always allowed",
	"cadvisor-port":             "there is no cAdvisor in podd",
}

const (
	ownLogger   = "podd's log has one format for each of --logging-format, and no buffer"
	noExitLocks = "podd locks its own directories"
)

// unsupportedFlag is a flag of the kubelet's that stands for no field and that podd does not
// have.
type unsupportedFlag struct {
	why     string
	boolean bool
}

var unsupportedFlags = map[string]unsupportedFlag{
	"cloud-config":                             {"podd knows no clouds", false},
	"exit-on-lock-contention":                  {noExitLocks, true},
	"experimental-allocatable-ignore-eviction": {"eviction thresholds are always subtracted from allocatable", true},
	"experimental-mounter-path":                {"podd mounts by itself", false},
	"housekeeping-interval":                    {"there is no cAdvisor in podd", false},
	"lock-file":                                {noExitLocks, false},
	"log-flush-frequency":                      {ownLogger, false},
	"log-json-info-buffer-size":                {ownLogger, false},
	"log-json-split-stream":                    {ownLogger, true},
	"log-text-info-buffer-size":                {ownLogger, false},
	"log-text-split-stream":                    {ownLogger, true},
	"maximum-dead-containers":                  {"podd keeps the last container of each name", false},
	"maximum-dead-containers-per-container":    {"podd keeps the last container of each name", false},
	"minimum-container-ttl-duration":           {"podd keeps the last container of each name", false},
	"runtime-cgroups":                          {"the runtime's cgroup is found by its process", false},
	"vmodule":                                  {"podd's log has one level: --v", false},
}

// cAdvisorFlags are the cAdvisor flags that the kubelet dropped in Kubernetes 1.37. It does not
// start with them any more, and neither does podd, which never honoured them.
var cAdvisorFlags = []string{
	"application-metrics-count-limit", "boot-id-file", "container-hints", "containerd",
	"containerd-namespace", "enable-load-reader", "event-storage-age-limit", "event-storage-event-limit",
	"global-housekeeping-interval", "log-cadvisor-usage", "machine-id-file", "storage-driver-buffer-duration",
	"storage-driver-db", "storage-driver-host", "storage-driver-password", "storage-driver-secure",
	"storage-driver-table", "storage-driver-user",
}

// The kubelet's defaults of --root-dir and --cert-dir.
const (
	KubeletRootDir = "/var/lib/kubelet"
	KubeletCertDir = KubeletRootDir + "/pki"
)

// BindKubelet adds the flags of the kubelet's that podd does not have, hidden: each of them
// is a warning that names it. It is for a podd that is started in the kubelet's place; call
// it after Bind. Under its own name podd rejects them (FlagError). Pods and plugins are then
// by default where the pods of drivers and device plugins mount them from, and certificates
// where kubeadm looks for them.
func (f *Flags) BindKubelet(fs *pflag.FlagSet) {
	fs.Lookup("root-dir").DefValue, fs.Lookup("cert-dir").DefValue = KubeletRootDir, KubeletCertDir
	f.rootDir, f.certDir, f.defaultCertDir = KubeletRootDir, KubeletCertDir, KubeletCertDir
	for name, path := range kubeletFlags {
		if flag := fs.Lookup(name); flag != nil {
			if fixed, ok := flag.Value.(*fixedFlag); ok {
				fixed.ignored = &ignoredFlag{flags: f, name: name, why: unsupportedFlags[name].why}
			}
			continue
		}
		if path == "" {
			other := unsupportedFlags[name]
			f.ignore(fs, name, other.why)
			noValue(fs, name, other.boolean)
			continue
		}
		i := slices.IndexFunc(Fields, func(field Field) bool { return field.Path == path })
		f.ignore(fs, name, Fields[i].Remark)
		noValue(fs, name, isBool(path))
	}
}

// noValue lets a flag that is true or false be given without a value.
func noValue(fs *pflag.FlagSet, name string, boolean bool) {
	if boolean {
		fs.Lookup(name).NoOptDefVal = "true"
	}
}

// isBool says that a field of KubeletConfiguration is true or false.
func isBool(path string) bool {
	t := fieldByPath(reflect.ValueOf(&kubeletv1beta1.KubeletConfiguration{}), path).Type()
	return t.Kind() == reflect.Bool || t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Bool
}

// ignoredFlag is a flag that has no effect.
type ignoredFlag struct {
	flags     *Flags
	name, why string
}

func (f *Flags) ignore(fs *pflag.FlagSet, name, why string) {
	fs.Var(&ignoredFlag{flags: f, name: name, why: why}, name, "no effect in podd: "+why)
	_ = fs.MarkHidden(name) // fails only for a flag that was not added
}

func (i *ignoredFlag) String() string { return "" }
func (i *ignoredFlag) Type() string   { return "string" }
func (i *ignoredFlag) Set(string) error {
	if !slices.Contains(i.flags.ignored, i) {
		i.flags.ignored = append(i.flags.ignored, i)
	}
	return nil
}

// FlagError says what to do about an error of parsing: whether an unknown flag
// is one of the kubelet's that podd does not have, or a slip. Other errors come
// back as they are. It is for cobra's SetFlagErrorFunc.
func FlagError(fs *pflag.FlagSet, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return err
	}
	name := unknown.GetSpecifiedName()
	if slices.Contains(cAdvisorFlags, name) {
		return fmt.Errorf("--%s configured cAdvisor, and the kubelet dropped it in Kubernetes 1.37; podd has no cAdvisor: "+
			"omit it (KUBELET_EXTRA_ARGS, kubeadm-flags.env and systemd drop-ins are the usual places)", name)
	}
	if field, ok := kubeletFlags[name]; ok {
		if field == "" {
			return fmt.Errorf("--%s is a flag of the kubelet that podd does not have: omit it", name)
		}
		return fmt.Errorf("--%s is a flag of the kubelet that podd does not have: omit it, and see the field %s in: podd config --explain", name, field)
	}
	var names []string
	fs.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	sort.Strings(names)
	if hint := suggest.Closest(name, names); hint != "" && len(name) > 1 {
		return fmt.Errorf("--%s is not a flag: did you mean --%s?", name, hint)
	}
	return fmt.Errorf("%w: see --help for the list", err)
}
