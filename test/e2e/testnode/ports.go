package testnode

import (
	"context"
	"fmt"
	"sync"

	"github.com/vishvananda/netlink"
)

// ports remembers what has ever been on a bridge: a veth that fell off it, as when
// the bridge was removed under it, is told from everybody else's by nothing but that.
type ports struct {
	bridge string

	mu    sync.Mutex
	known map[int]string // name by index
	err   error
}

// watchPorts begins to remember; it goes on until ctx ends.
func watchPorts(ctx context.Context, bridge string) (*ports, error) {
	p := &ports{bridge: bridge, known: map[int]string{}}
	updates := make(chan netlink.LinkUpdate)
	err := netlink.LinkSubscribeWithOptions(updates, ctx.Done(), netlink.LinkSubscribeOptions{ReceiveBufferSize: 8 << 20, ReceiveBufferForceSize: true, ErrorCallback: func(err error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if ctx.Err() == nil {
			p.err = err
		}
	}})
	if err != nil {
		return nil, fmt.Errorf("watch the ports of bridge %s: %w", bridge, err)
	}
	go func() {
		for u := range updates { // closed when ctx ends
			p.note(u.Attrs())
		}
	}()
	return p, nil
}

func (p *ports) note(l *netlink.LinkAttrs) {
	if l.MasterIndex == 0 {
		return
	}
	bridge, err := netlink.LinkByName(p.bridge)
	if err != nil || l.MasterIndex != bridge.Attrs().Index {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known[l.Index] = l.Name
}

// fallen are those of these links that were on the bridge and are on none.
func (p *ports) fallen(all []netlink.Link) ([]string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var names []string
	for _, l := range all {
		if a := l.Attrs(); a.MasterIndex == 0 && p.known[a.Index] == a.Name {
			names = append(names, a.Name)
		}
	}
	return names, p.err
}
