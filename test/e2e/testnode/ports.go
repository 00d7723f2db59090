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
	index int            // of the bridge, the last one of that name
	known map[int]string // name by index
	err   error
}

// watchPorts begins to remember, before there is a bridge of that name; it goes on
// until ctx ends. It does not ask for what exists: netlink's request for that goes to
// every other listener of the machine too.
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

// note goes by what the updates say alone: by the time one is read, the bridge may
// be gone.
func (p *ports) note(l *netlink.LinkAttrs) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case l.Name == p.bridge:
		p.index = l.Index
	case l.MasterIndex != 0 && l.MasterIndex == p.index:
		p.known[l.Index] = l.Name
	}
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
