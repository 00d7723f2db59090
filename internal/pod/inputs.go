package pod

// The paths, on the node and in containers, of the files that podd makes for each pod.
const (
	EtcHosts      = "/etc/hosts"
	EtcResolvConf = "/etc/resolv.conf"
	EtcHostname   = "/etc/hostname"
)

// SandboxInputs are the facts that a pod's sandbox depends on besides the pod: podd
// computes them once, when it creates the sandbox, and the containers share them.
type SandboxInputs struct {
	// DNS is the resolver configuration.
	DNS DNS
	// Hostname is the UTS namespace's hostname; empty on the node's network.
	Hostname string
	// ResolvConf and HostnameFile are the contents of these files in the pod's containers,
	// unless they mount their own; nil for the runtime's.
	ResolvConf, HostnameFile []byte
	// CgroupParent is the pod's cgroup in the format of the runtime's driver; if
	// empty, the runtime chooses.
	CgroupParent string
	// UserNamespace is the pod's range of the node's IDs; nil for the node's own
	// namespace.
	UserNamespace *IDRange
	// Warnings say what the pod requested and does not get. They are emitted once per
	// sandbox.
	Warnings []Warning
}

// DNS is the content of a pod's resolv.conf.
type DNS struct {
	Servers, Searches, Options []string
}

// IDRange is a range of Length IDs of the node, starting at First, for users and groups. In
// the pod they start at 0.
type IDRange struct {
	First, Length uint32
}

// Warning is an event to emit, with the kubelet's reason.
type Warning struct {
	Reason, Message string
}

// ContainerInputs are the facts that a container depends on besides the pod, computed once
// per start.
type ContainerInputs struct {
	Env Environment
	// SubPaths are the subPaths of the container's volumeMounts, by index, with variables
	// expanded but not validated; empty for a mount of the whole volume.
	SubPaths []string
	// Hosts is the content of the pod's /etc/hosts; nil if the container mounts its
	// own.
	Hosts []byte
}

// Environment is a container's variables: Names in the order of the pod, each once.
type Environment struct {
	Names  []string
	Values map[string]string
	// Confidential are the names of variables with a Secret's value or a file's value, and
	// of variables expanded from one of those.
	Confidential map[string]bool
}

// Set sets a variable, which keeps its first position.
func (e *Environment) Set(name, value string) {
	if _, there := e.Values[name]; !there {
		e.Names = append(e.Names, name)
	}
	if e.Values == nil {
		e.Values = map[string]string{}
	}
	e.Values[name] = value
	delete(e.Confidential, name)
}

// Expand replaces each $(NAME) with the variable's value, as the API does for command
// lines: references to unknown variables stay.
func (e Environment) Expand(text string) string {
	return Expand(text, func(name string) (string, bool) { v, ok := e.Values[name]; return v, ok })
}

// ExpandAll expands each text; it returns nil for an empty list.
func (e Environment) ExpandAll(texts []string) []string {
	if len(texts) == 0 {
		return nil
	}
	out := make([]string, len(texts))
	for i, text := range texts {
		out[i] = e.Expand(text)
	}
	return out
}
