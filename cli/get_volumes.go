package cli

import (
	"strings"

	"podd/server"
)

// stored makes a column of objects that have a StorageInfo.
func stored(title string, cell func(*server.StorageInfo) string) getColumn {
	return getColumn{title: title, cell: func(i *server.ObjectInfo) string {
		if i.Storage == nil {
			return ""
		}
		return printable(cell(i.Storage))
	}}
}

func wide(c getColumn) getColumn {
	c.wide = true
	return c
}

var (
	capacityColumn = stored("CAPACITY", func(s *server.StorageInfo) string { return s.Capacity })
	modesColumn    = stored("ACCESS MODES", func(s *server.StorageInfo) string { return strings.Join(s.AccessModes, ",") })
	statusColumn   = stored("STATUS", func(s *server.StorageInfo) string { return s.Status })
	classColumn    = stored("STORAGECLASS", func(s *server.StorageInfo) string { return s.StorageClass })
	modeColumn     = stored("VOLUMEMODE", func(s *server.StorageInfo) string { return s.VolumeMode })
)

func volumeColumns() []getColumn {
	return []getColumn{capacityColumn, modesColumn, stored("RECLAIM POLICY", func(s *server.StorageInfo) string { return s.ReclaimPolicy }), statusColumn,
		stored("CLAIM", func(s *server.StorageInfo) string { return s.Claim }), classColumn, wide(modeColumn)}
}

func claimColumns() []getColumn {
	return []getColumn{statusColumn, stored("VOLUME", func(s *server.StorageInfo) string { return s.Volume }), capacityColumn, modesColumn, classColumn,
		wide(modeColumn), wide(stored("REASON", func(s *server.StorageInfo) string { return s.Reason }))}
}
