package cgroup

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
)

// unitTimeout bounds one call to systemd, which responds within milliseconds
// unless the machine is in trouble.
const unitTimeout = 10 * time.Second

// units are systemd's slices.
type units interface {
	// start creates a transient slice; made is false if it already exists.
	start(ctx context.Context, name string, props []dbus.Property) (made bool, err error)
	set(ctx context.Context, name string, props []dbus.Property) error
	// stop stops a slice; it is no error if systemd does not know it.
	stop(ctx context.Context, name string) error
	// reload has systemd read its configuration again.
	reload(ctx context.Context) error
}

// bus is the connection to systemd, made on first use, and again after systemd
// closed it.
type bus struct {
	mu   sync.Mutex // guards conn
	conn *dbus.Conn
}

func (b *bus) connect(ctx context.Context) (*dbus.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn != nil && b.conn.Connected() {
		return b.conn, nil
	}
	// A cancelled context would close the connection, not only end the attempt.
	// Root reaches systemd even where no D-Bus daemon runs.
	conn, err := dbus.NewWithContext(context.WithoutCancel(ctx))
	if err != nil {
		return nil, fmt.Errorf("connect to systemd: %w", err)
	}
	if b.conn != nil {
		b.conn.Close()
	}
	b.conn = conn
	return conn, nil
}

func (b *bus) start(ctx context.Context, name string, props []dbus.Property) (made bool, err error) {
	conn, err := b.connect(ctx)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, unitTimeout)
	defer cancel()
	done := make(chan string, 1)
	if _, err := conn.StartTransientUnitContext(ctx, name, "replace", props, done); err != nil {
		if isBusError(err, "org.freedesktop.systemd1.UnitExists") {
			return false, nil
		}
		return false, fmt.Errorf("start unit %s: %w", name, err)
	}
	return true, awaitJob(ctx, done, "start unit "+name)
}

func (b *bus) set(ctx context.Context, name string, props []dbus.Property) error {
	conn, err := b.connect(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, unitTimeout)
	defer cancel()
	if err := conn.SetUnitPropertiesContext(ctx, name, true, props...); err != nil {
		return fmt.Errorf("set properties of unit %s: %w", name, err)
	}
	return nil
}

func (b *bus) stop(ctx context.Context, name string) error {
	conn, err := b.connect(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, unitTimeout)
	defer cancel()
	done := make(chan string, 1)
	if _, err := conn.StopUnitContext(ctx, name, "replace", done); err != nil {
		if isBusError(err, "org.freedesktop.systemd1.NoSuchUnit") {
			return nil
		}
		return fmt.Errorf("stop unit %s: %w", name, err)
	}
	return awaitJob(ctx, done, "stop unit "+name)
}

func (b *bus) reload(ctx context.Context) error {
	conn, err := b.connect(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, unitTimeout)
	defer cancel()
	if err := conn.ReloadContext(ctx); err != nil {
		return fmt.Errorf("reload systemd: %w", err)
	}
	return nil
}

func awaitJob(ctx context.Context, done <-chan string, doing string) error {
	select {
	case result := <-done:
		if result != "done" {
			return fmt.Errorf("%s: systemd job ended with %q", doing, result)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", doing, context.Cause(ctx))
	}
}

func isBusError(err error, name string) bool {
	e, ok := errors.AsType[godbus.Error](err)
	return ok && e.Name == name
}

// sliceProperties are the properties of a new slice, the same as those of runc's
// systemd driver, so that the runtime and podd agree on a pod's slice.
func sliceProperties(parent, description string) []dbus.Property {
	props := []dbus.Property{
		dbus.PropDescription(description),
		property("MemoryAccounting", true), property("CPUAccounting", true),
		property("IOAccounting", true), property("TasksAccounting", true),
		property("DefaultDependencies", false),
	}
	if parent != "" {
		props = append(props, dbus.PropWants(parent))
	}
	return props
}

// properties converts limits into properties of a slice. Limits without a
// property are written to the files only.
func (t *Tree) properties(l Limits) []dbus.Property {
	var props []dbus.Property
	v2 := t.facts.Version == V2
	if l.CPUShares > 0 && v2 {
		props = append(props, property("CPUWeight", uint64(weight(l.CPUShares))))
	} else if l.CPUShares > 0 {
		props = append(props, property("CPUShares", uint64(l.CPUShares)))
	}
	if l.CPUQuota != 0 {
		props = append(props, property("CPUQuotaPerSecUSec", quotaPerSecond(l.CPUQuota, l.CPUPeriod)))
		if l.CPUPeriod != 100_000 {
			props = append(props, property("CPUQuotaPeriodUSec", uint64(l.CPUPeriod)))
		}
	}
	if l.Memory > 0 && v2 {
		props = append(props, property("MemoryMax", uint64(l.Memory)))
	} else if l.Memory > 0 {
		props = append(props, property("MemoryLimit", uint64(l.Memory)))
	}
	if l.SetMemoryQoS && v2 {
		props = append(props, property("MemoryMin", uint64(l.MemoryQoS.Min)), property("MemoryLow", uint64(l.MemoryQoS.Low)))
		switch l.MemoryQoS.High {
		case keepHigh:
		case 0:
			props = append(props, property("MemoryHigh", infinity))
		default:
			props = append(props, property("MemoryHigh", uint64(l.MemoryQoS.High)))
		}
	}
	if l.PIDs > 0 {
		props = append(props, property("TasksMax", uint64(l.PIDs)))
	}
	return props
}

// infinity means no limit in systemd's properties.
const infinity uint64 = 1<<64 - 1

// quotaPerSecond returns microseconds per second, rounded up to 10 ms: systemd
// has that granularity, but rounds down.
func quotaPerSecond(quota, period int64) uint64 {
	if quota < 0 {
		return infinity
	}
	n := uint64(quota) * 1_000_000 / uint64(period)
	return (n + 9_999) / 10_000 * 10_000
}

// systemdQuota returns a quota as systemd rounds it, for the files: on v1 the
// kernel rejects a container's limit above that of its pod, and runc rounds a
// container's in the same way.
func systemdQuota(quota, period int64) int64 {
	if quota <= 0 {
		return quota
	}
	return int64(quotaPerSecond(quota, period)) * period / 1_000_000
}

func property(name string, value any) dbus.Property {
	return dbus.Property{Name: name, Value: godbus.MakeVariant(value)}
}
