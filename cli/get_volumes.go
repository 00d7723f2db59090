package cli

import (
	"strings"

	"podd/server"
)

// storageColumn makes a column of objects that have a StorageInfo.
func storageColumn(title string, cell func(*server.StorageInfo) string) getColumn {
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
	capacityColumn = storageColumn("CAPACITY", func(s *server.StorageInfo) string { return s.Capacity })
	modesColumn    = storageColumn("ACCESS MODES", func(s *server.StorageInfo) string { return strings.Join(s.AccessModes, ",") })
	statusColumn   = storageColumn("STATUS", func(s *server.StorageInfo) string { return s.Status })
	classColumn    = storageColumn("STORAGECLASS", func(s *server.StorageInfo) string { return s.StorageClass })
	modeColumn     = storageColumn("VOLUMEMODE", func(s *server.StorageInfo) string { return s.VolumeMode })
)

func volumeColumns() []getColumn {
	return []getColumn{capacityColumn, modesColumn, storageColumn("RECLAIM POLICY", func(s *server.StorageInfo) string { return s.ReclaimPolicy }), statusColumn,
		storageColumn("CLAIM", func(s *server.StorageInfo) string { return s.Claim }), classColumn, wide(modeColumn)}
}

func claimColumns() []getColumn {
	return []getColumn{statusColumn, storageColumn("VOLUME", func(s *server.StorageInfo) string { return s.Volume }), capacityColumn, modesColumn, classColumn,
		wide(modeColumn), wide(storageColumn("REASON", func(s *server.StorageInfo) string { return s.Reason }))}
}
