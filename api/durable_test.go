package api

import "testing"

// jobMessages has one of each message about durable jobs.
func jobMessages(req JobRequest, stats JobStats) []any {
	row := Row{Key: Bytes("word"), Value: IntValue(-7)}
	progress := JobProgress{Job: "j1", Phase: "map", Place: 3, Attempt: 1, Take: 2, Buckets: 4, Of: 256, Records: 10, Bytes: 1000, Reason: "BUSY"}
	failed := Error{Code: CodeLost, Message: "router r1 fell silent"}
	info := JobInfo{
		Job: "j1", State: JobRunning, Durable: true, Module: "wordcount", Function: "map", Reduce: "sum", Space: "default", Wanted: []uint16{3, 65534}, Client: "shop",
		Router: "r1-0a1b2c3d", Take: 2, Attempts: 3, Cancel: true, SubmittedMS: 1_700_000_000_000, StartedMS: 1_700_000_001_000, EndedMS: 1_700_000_002_000,
		Progress: &progress, Error: &failed, Stats: &stats, Rows: 20, Bytes: 1 << 33,
	}
	return []any{
		JobRecord{
			Version: 1, Job: "j1", Durable: true, State: JobQueued, Asked: "ab12", Request: &req, Module: "wordcount", Router: "r1-0a1b2c3d", Take: 2, Back: 1,
			Message: 17, Cancel: true, SubmittedMS: 1_700_000_000_000, StartedMS: 1_700_000_001_000, EndedMS: 1_700_000_002_000, Attempts: 3,
			Error: &failed, Stats: &stats, Result: "j1.2", Bytes: 1 << 33,
		},
		QueuedJob{Job: "j1"},
		ResultIndex{Version: 1, Job: "j1", Take: 2, Stats: &stats, Rows: []Row{row}, Pieces: []uint64{0, 40_000}, Certificate: Bytes("\x80")},
		ResultPiece{Version: 1, First: 40_000, Rows: []Row{row}},
		JobState{Job: "j1", State: JobDone, Over: true},
		JobName{Job: "j1"},
		info,
		JobsRequest{State: JobFailed, Client: "shop", Limit: 20},
		JobsReply{Jobs: []JobInfo{info}, More: 5},
	}
}

func TestJobStatusOver(t *testing.T) {
	for status, over := range map[JobStatus]bool{JobQueued: false, JobRunning: false, JobDone: true, JobFailed: true, JobCanceled: true} {
		if status.Over() != over {
			t.Errorf("%s: over is %v", status, status.Over())
		}
	}
}
