package main

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var (
	hexID     = regexp.MustCompile(`\b[0-9a-f]{32,64}\b|\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`)
	timestamp = regexp.MustCompile(`\b20\d\d-\d\d-\d\dT[0-9:.]+(Z|[+-]\d\d:\d\d)`)
	took      = regexp.MustCompile(`\b(\d+m)?\d+(\.\d+)?(ms|µs|s)\b( \((\d+m)?\d+(\.\d+)?(ms|µs|s) including waiting\))`)
	source    = regexp.MustCompile(`(read tcp|dial tcp|write tcp) [0-9.]+:\d+->`)
	sockets   = regexp.MustCompile(`unix://\S+\.sock`)
	grpcCode  = regexp.MustCompile(`rpc error: code = \w+ desc = `)
	shortage  = regexp.MustCompile(`\bq: \d+`) // by how much, which hangs on the neighbours
	pidNumber = regexp.MustCompile(`\bpid \d+`)
)

// normaliser sets aside what two nodes on one machine must differ in.
func normaliser(s *Side, scenario *Scenario) func(string) string {
	subnet := s.Node.Subnet.Addr().String()
	address := regexp.MustCompile(`\b` + regexp.QuoteMeta(strings.TrimSuffix(subnet, "0.0")) + `\d+\.\d+\b`)
	root := filepath.Join(s.Node.Dir, "kubelet", "root")
	if s.Name != sideKubelet {
		root = s.Node.Root()
	}
	own := strings.NewReplacer(
		nodeName+"-"+s.Name, nodeName, namespace+"-"+s.Name, namespace, // in an apiserver, which has those of all sides
		root, "ROOT", filepath.Dir(s.Agent.Manifests()), "AGENT",
		s.Out+"/"+scenario.Name, "OUT", s.Tools, "TOOLS", s.Registry, "REGISTRY",
		port(s.Name, scenario.Number, 0), "PORT", port(s.Name, scenario.Number, 1), "PORT2", s.Node.CgroupRoot, "CGROUP", s.Node.Dir, "NODE",
		s.Node.Bridge, "BRIDGE", s.URL.Address, "URL",
	)
	return func(text string) string {
		text = own.Replace(text)
		text = address.ReplaceAllString(text, "IP")
		text = hexID.ReplaceAllString(text, "ID")
		text = timestamp.ReplaceAllString(text, "TIME")
		text = took.ReplaceAllString(text, "A WHILE")
		text = source.ReplaceAllString(text, "$1 ")
		text = sockets.ReplaceAllString(text, "SOCKET")
		text = shortage.ReplaceAllString(text, "q: N")
		text = grpcCode.ReplaceAllString(text, "")
		return pidNumber.ReplaceAllString(text, "pid N")
	}
}

// sortOptions puts a resolver's options into an order: the kubelet writes those
// that it merged in the random one of a map, and they mean the same in any.
func sortOptions(line string) string {
	before, options, ok := strings.Cut(line, "/etc/resolv.conf: options ")
	if !ok {
		return line
	}
	words := strings.Fields(options)
	slices.Sort(words)
	return before + "/etc/resolv.conf: options " + strings.Join(words, " ")
}

// unlimited is what cgroup v1 has for memory without a limit. The kubelet takes it for
// one of an API pod's own, if it looks while the pod's cgroup is there.
const (
	memoryLimit = "resources.limits.memory"
	unlimited   = "9007199254740988Ki"
)

// normalise goes over everything that is compared.
func (r *Record) normalise(clean func(string) string) {
	r.Failed = clean(r.Failed)
	for _, all := range r.Pods {
		for _, s := range all {
			for axis := range s.Axes {
				for i := range s.Axes[axis] {
					s.Axes[axis][i].State = clean(s.Axes[axis][i].State)
				}
			}
			if s.Final[memoryLimit] == unlimited {
				delete(s.Final, memoryLimit)
			}
			for path, value := range s.Final {
				s.Final[path] = clean(value)
			}
		}
	}
	for pod, events := range r.Events {
		for i := range events {
			events[i].Message = clean(events[i].Message)
		}
		r.Events[pod] = gather(events)
	}
	for i := range r.Trace {
		r.Trace[i] = sortOptions(clean(r.Trace[i]))
	}
}
