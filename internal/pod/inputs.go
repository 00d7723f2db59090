package pod

// EtcHosts is where a node and a container have their hosts file.
const EtcHosts = "/etc/hosts"

// SandboxInputs are what a pod's sandbox rests on beyond the pod: values that
// were computed once, when it was made, and that its containers share.
type SandboxInputs struct {
	// DNS is the resolver configuration.
	DNS DNS
	// Hostname is the UTS namespace's; empty on the node's network.
	Hostname string
	// CgroupParent is the pod's cgroup in the form of the runtime's driver; empty
	// leaves the choice to the runtime.
	CgroupParent string
	// UserNamespace is the pod's range of the node's IDs; nil for the node's own
	// namespace.
	UserNamespace *IDRange
	// Warnings are what the pod asked for and does not get, to be told once a
	// sandbox.
	Warnings []Warning
}

// DNS is what a pod's resolv.conf says.
type DNS struct {
	Servers, Searches, Options []string
}

// IDRange is First and the Length-1 IDs of the node after it, of users as of
// groups; the pod sees them from 0 on.
type IDRange struct {
	First, Length uint32
}

// Warning is an event to come, with the kubelet's reason.
type Warning struct {
	Reason, Message string
}

// ContainerInputs are what a container rests on beyond the pod, computed once
// for each start.
type ContainerInputs struct {
	Env Environment
	// SubPaths are those of the container's volumeMounts, by their index, with
	// variables expanded and as yet unchecked; empty for a mount of the whole volume.
	SubPaths []string
	// Hosts is the content of the pod's /etc/hosts; nil where the container mounts
	// one of its own.
	Hosts []byte
}

// Environment is a container's variables: Names in the order in which the pod
// declares them, each once.
type Environment struct {
	Names  []string
	Values map[string]string
}

// Set gives a variable its value: at its first place, if it has one.
func (e *Environment) Set(name, value string) {
	if _, there := e.Values[name]; !there {
		e.Names = append(e.Names, name)
	}
	if e.Values == nil {
		e.Values = map[string]string{}
	}
	e.Values[name] = value
}

// Expand replaces $(NAME) by the variable's value, as the API has it for command
// lines: what names no variable stays as it is.
func (e Environment) Expand(text string) string {
	return Expand(text, func(name string) (string, bool) { v, ok := e.Values[name]; return v, ok })
}

// ExpandAll is Expand of each; nil for nothing.
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
