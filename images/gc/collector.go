package gc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"podd/internal/bytesize"
	"podd/internal/imageref"
	"podd/internal/pod"
	"podd/internal/wake"
)

const (
	// period is the kubelet's (pkg/kubelet/kubelet.go, ImageGCPeriod).
	period = 5 * time.Minute
	// minInterval is the shortest time between two collections on request.
	minInterval = 30 * time.Second
	// sourcesPending is the retry while a source of pods is not ready.
	sourcesPending = 10 * time.Second
	// timeout bounds one collection.
	timeout = 4 * time.Minute
	// diskFullTarget is how many bytes are freed for a pull that found the disk full while usage
	// is below the thresholds.
	diskFullTarget = 2 << 30
	// eventInterval is the interval of events about a disk that stays full: every five
	// minutes would be too often.
	eventInterval = 30 * time.Minute
)

// Runtime is the part of the container runtime that a Collector needs.
type Runtime interface {
	ListImages(ctx context.Context) ([]*pod.Image, error)
	// ContainerImages returns the IDs and names of the images of all containers, including
	// dead ones: own are those of podd's containers, others those of other agents'
	// containers.
	ContainerImages(ctx context.Context) (own, others []string, err error)
	// RemoveImage removes an image with all its names.
	RemoveImage(ctx context.Context, image string) error
}

// Recorder records events of the node.
type Recorder interface {
	NodeEvent(eventType, reason, message string)
}

// Config configures a Collector; DescribeUsage, ImagesListed, Recorder, Log and Registerer
// may be nil.
type Config struct {
	Runtime Runtime
	Policy  Policy
	// Disk reads the usage of the images' file system.
	Disk func(ctx context.Context) (Disk, error)
	// WantedImages returns the images that manifests name and those of the image directory. It
	// returns false until every source of pods is ready: nothing is removed before.
	WantedImages func() ([]string, bool)
	// DescribeUsage summarizes what uses the space on a disk that stays full.
	DescribeUsage func(ctx context.Context) string
	// ImagesListed is called at each collection with the IDs of the images that the runtime had at
	// that time.
	ImagesListed func(ids []string, began time.Time)
	Recorder     Recorder
	Log          *slog.Logger
	Registerer   prometheus.Registerer
}

// Collector removes unused images when their file system runs full, or when they are
// too old.
type Collector struct {
	cfg      Config
	log      *slog.Logger
	removed  *prometheus.CounterVec
	poke     wake.Signal
	requests chan func(context.Context)

	// The fields below belong to Run.
	records       map[string]record
	runtimeShared bool          // containers of other agents were seen
	retryAfter    time.Duration // until the next collection, if that is sooner than usual
	diskFull      bool          // a pull found the disk full since the last collection
	lastFailed    bool          // the last collection failed
	lastEventAt   time.Time     // when an event last reported a disk that stays full
}

// New returns a Collector; it starts nothing.
func New(cfg Config) *Collector {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	c := &Collector{
		cfg: cfg, log: cfg.Log, poke: wake.New(), requests: make(chan func(context.Context)), records: map[string]record{},
		removed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_image_garbage_collected_total",
			Help: "Total number of images garbage collected by the kubelet, whether through disk usage or image age.",
		}, []string{"reason"}),
	}
	if cfg.Registerer != nil {
		cfg.Registerer.MustRegister(c.removed)
	}
	return c
}

// NotifyDiskFull requests a collection because a pull found the disk full. If usage is below the
// thresholds, the collection frees 2 GiB. It never blocks; several requests count as one.
func (c *Collector) NotifyDiskFull() {
	c.poke.Notify()
}

// Run collects every five minutes until ctx ends. It is called once, when the runtime
// is ready.
func (c *Collector) Run(ctx context.Context) error {
	if c.cfg.Policy.HighThresholdPercent >= 100 && c.cfg.Policy.MaxAge == 0 {
		// Disabled, as in the kubelet, except when a disk is full: the age of images counts
		// from here on.
		wanted, _ := c.cfg.WantedImages()
		if _, err := c.observe(ctx, wanted, time.Now()); err != nil {
			c.log.Debug("cannot list images: their age counts from the next time", "error", err)
		}
		for {
			select {
			case request := <-c.requests:
				request(ctx)
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	began := time.Now()
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		c.retryAfter = 0
		c.collectAndReport(ctx, began)
		c.diskFull = false
		last := time.Now()
		var again <-chan time.Time
		if c.retryAfter > 0 {
			again = time.After(c.retryAfter)
		}
		for requested := true; requested; {
			requested = false
			select {
			case <-tick.C:
			case <-again:
			case request := <-c.requests:
				request(ctx)
				requested = true
			case <-c.poke:
				c.diskFull = true
				if wait := minInterval - time.Since(last); wait > 0 {
					wake.Sleep(ctx, wait)
				}
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// collectAndReport collects once and reports errors. The second error in a row becomes an
// event, as in the kubelet.
func (c *Collector) collectAndReport(ctx context.Context, began time.Time) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := c.Collect(ctx, began)
	switch {
	case err == nil:
		c.lastFailed = false
		return
	case errors.Is(err, context.Canceled), errors.Is(err, pod.ErrUnavailable):
		return // no failure of image garbage collection
	case c.lastFailed && time.Since(c.lastEventAt) >= eventInterval:
		c.lastEventAt = time.Now()
		c.event("ImageGCFailed", err.Error())
	}
	c.lastFailed = true
	c.log.Warn("image garbage collection failed", "error", err)
}

// Collect removes images that are too old, and those that must make room. began is when
// podd started to observe the use of images: MaxAge counts from then at the earliest.
// The error is meant for users.
func (c *Collector) Collect(ctx context.Context, began time.Time) error {
	wanted, complete := c.cfg.WantedImages()
	now := time.Now()
	in, err := c.observe(ctx, wanted, now)
	if err != nil {
		return err
	}
	if c.cfg.ImagesListed != nil {
		ids := make([]string, len(in.images))
		for i, image := range in.images {
			ids[i] = image.ID
		}
		c.cfg.ImagesListed(ids, now)
	}
	if !complete {
		c.retryAfter = sourcesPending
		return nil
	}
	if in.now.Sub(began) <= in.policy.MaxAge {
		in.policy.MaxAge = 0
	}
	removable, old, young := in.removable()
	var errs []error
	var rest []*pod.Image
	for _, i := range removable {
		if !old[i.ID] {
			rest = append(rest, i)
		} else if err := c.remove(ctx, i, "age"); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, c.freeSpace(ctx, rest, young))...)
}

// observe lists the images and what uses them.
func (c *Collector) observe(ctx context.Context, wanted []string, now time.Time) (input, error) {
	in := input{records: c.records, policy: c.cfg.Policy, now: now, needed: map[string]bool{}}
	var err error
	if in.images, err = c.cfg.Runtime.ListImages(ctx); err != nil {
		return in, err
	}
	in.images = c.withoutInvalid(in.images)
	own, others, err := c.cfg.Runtime.ContainerImages(ctx)
	if err != nil {
		return in, err
	}
	c.runtimeShared = c.runtimeShared || len(others) > 0
	in.runtimeShared = c.runtimeShared
	add := func(to map[string]bool, names []string) {
		for _, name := range names {
			to[name] = true
			if full := imageref.Full(name); full != "" {
				to[full] = true
			}
		}
	}
	used, mine := map[string]bool{}, map[string]bool{}
	for _, to := range []map[string]bool{used, in.needed} {
		add(to, own)
		add(to, others)
	}
	add(in.needed, wanted)
	add(mine, own)
	add(mine, wanted)
	updateRecords(c.records, in, used, mine)
	return in, nil
}

// withoutInvalid leaves out images without an ID, which podd could not remove.
func (c *Collector) withoutInvalid(all []*pod.Image) []*pod.Image {
	valid := make([]*pod.Image, 0, len(all))
	for _, i := range all {
		if i.ID == "" {
			c.event("InvalidImageID", fmt.Sprintf("ImageID is not valid, skipping, image: %v", i.Tags))
			continue
		}
		valid = append(valid, i)
	}
	return valid
}

// freeSpace removes images one by one until the file system has enough room. Their sizes do
// not tell how much a removal frees: layers are shared, and sizes are those of compressed
// layers.
func (c *Collector) freeSpace(ctx context.Context, removable []*pod.Image, young int) error {
	disk, err := c.cfg.Disk(ctx)
	if err != nil {
		return err
	}
	if disk.Capacity == 0 {
		err := errors.New("invalid capacity 0 on image filesystem")
		c.event("InvalidDiskCapacity", err.Error())
		return err
	}
	disk.Available = min(disk.Available, disk.Capacity)
	want := c.cfg.Policy.targetAvailable(disk)
	if c.diskFull && want == 0 && c.cfg.Policy.HighThresholdPercent < 100 {
		// The failed pull has released what it had written: usage is below the
		// thresholds again, but that image still does not fit.
		want = min(disk.Available+diskFullTarget, disk.Capacity)
		if len(removable) == 0 {
			return nil
		}
	}
	if want == 0 {
		return nil
	}
	c.log.Info("removing images to free disk space", "used_percent", disk.UsedPercent(), "available", disk.Available, "want", want, "candidates", len(removable))
	before := disk
	var errs []error
	for _, i := range removable {
		if disk.Available >= want {
			break
		}
		if err := c.remove(ctx, i, "space"); err != nil {
			errs = append(errs, err)
			continue
		}
		if now, err := c.cfg.Disk(ctx); err == nil {
			disk.Available = now.Available
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("remove images to make room: %w", errors.Join(errs...))
	}
	if disk.Available >= want || c.cfg.Policy.targetAvailable(disk) == 0 {
		return nil
	}
	if young > 0 { // every image is young when podd has just started
		c.retryAfter = max(c.cfg.Policy.MinAge, time.Second)
		return nil
	}
	return c.reportStillFull(ctx, before, disk)
}

func (c *Collector) remove(ctx context.Context, i *pod.Image, why string) error {
	if err := c.cfg.Runtime.RemoveImage(ctx, i.ID); err != nil {
		return err
	}
	delete(c.records, i.ID)
	c.removed.WithLabelValues(why).Inc()
	c.log.Info("image removed", "image", i.ID, "tags", i.Tags, "bytes", i.Size, "why", why)
	return nil
}

// reportStillFull reports that the disk is still too full although no unused image is left, and
// what uses the space.
func (c *Collector) reportStillFull(ctx context.Context, before, now Disk) error {
	var freed uint64
	if now.Available > before.Available {
		freed = now.Available - before.Available
	}
	text := fmt.Sprintf("Insufficient free disk space on the node's image filesystem (%d%% of %s used). "+
		"Failed to free sufficient space by deleting unused images (freed %d bytes). "+
		"Investigate disk usage, as it could be used by active images, logs, volumes, or other data.",
		now.UsedPercent(), bytesize.Format(int64(now.Capacity)), freed)
	if c.cfg.DescribeUsage != nil {
		if who := c.cfg.DescribeUsage(ctx); who != "" {
			text += " " + who
		}
	}
	if !c.lastFailed || time.Since(c.lastEventAt) >= eventInterval {
		c.event("FreeDiskSpaceFailed", text)
	}
	return errors.New(text)
}

func (c *Collector) event(reason, message string) {
	if c.cfg.Recorder != nil {
		c.cfg.Recorder.NodeEvent(v1.EventTypeWarning, reason, message)
	}
}
