package podenv

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"podd/internal/pod"
)

// sandboxFiles are a pod's resolv.conf and hostname, as runtimes write them. An empty
// configuration, or no hostname, means the node's own file. podd writes them itself,
// since containers may write to them, and files in a runtime's directory cannot be
// counted towards the pod's limit.
func sandboxFiles(dns pod.DNS, hostname string) (resolv, name []byte, err error) {
	if resolv = resolvConfText(dns); len(resolv) == 0 {
		if resolv, err = os.ReadFile(pod.EtcResolvConf); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, fmt.Errorf("read the node's resolver configuration: %w", err)
		}
		resolv = append([]byte{}, resolv...) // not nil: an empty file is one
	}
	if hostname == "" {
		if hostname, err = os.Hostname(); err != nil {
			return nil, nil, fmt.Errorf("ask for the node's host name: %w", err)
		}
	}
	return resolv, []byte(hostname + "\n"), nil
}

func resolvConfText(dns pod.DNS) []byte {
	var b strings.Builder
	if len(dns.Searches) > 0 {
		fmt.Fprintf(&b, "search %s\n", strings.Join(dns.Searches, " "))
	}
	for _, server := range dns.Servers {
		fmt.Fprintf(&b, "nameserver %s\n", server)
	}
	if len(dns.Options) > 0 {
		fmt.Fprintf(&b, "options %s\n", strings.Join(dns.Options, " "))
	}
	return []byte(b.String())
}
