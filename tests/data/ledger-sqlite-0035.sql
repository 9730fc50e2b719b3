BEGIN TRANSACTION;
CREATE TABLE access_token (
	token_id INTEGER NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	user_name VARCHAR(63) NOT NULL, 
	team VARCHAR(63) NOT NULL, 
	scopes VARCHAR NOT NULL, 
	made_at DATETIME NOT NULL, 
	expires_at DATETIME NOT NULL, 
	revoked_at DATETIME, 
	PRIMARY KEY (token_id), 
	CONSTRAINT token_expires_later CHECK (expires_at > made_at), 
	CONSTRAINT digest_is_sha256 CHECK (length(digest) = 64), 
	CONSTRAINT token_has_its_names CHECK (length(user_name) > 0 AND length(team) > 0), 
	UNIQUE (digest)
);
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0035');
CREATE TABLE attempt (
	run_id VARCHAR(36) NOT NULL, 
	attempt INTEGER NOT NULL, 
	node VARCHAR, 
	resource VARCHAR, 
	reason VARCHAR NOT NULL, 
	claimed_at DATETIME, 
	started_at DATETIME, 
	ended_at DATETIME, 
	exit_kind VARCHAR, 
	exit_code INTEGER, 
	exit_message VARCHAR NOT NULL, 
	prediction JSON, 
	demand JSON, 
	measurement JSON, 
	PRIMARY KEY (run_id, attempt), 
	CONSTRAINT attempt_number_at_least_1 CHECK (attempt >= 1), 
	CONSTRAINT attempt_exit_known CHECK (exit_kind IS NULL OR exit_kind IN ('ok', 'failed', 'out_of_memory', 'gpu_out_of_memory', 'timed_out', 'cancelled', 'infrastructure', 'preempted', 'refused')), 
	CONSTRAINT attempt_ends_with_its_exit CHECK ((ended_at IS NULL) = (exit_kind IS NULL)), 
	FOREIGN KEY(run_id) REFERENCES run (run_id)
);
INSERT INTO "attempt" VALUES('11111111-run',1,'node-a',NULL,'','2026-11-25 22:14:21.572000','2026-11-25 22:14:21.586000',NULL,NULL,NULL,'',NULL,NULL,NULL);
INSERT INTO "attempt" VALUES('22222222-run',1,'node-a',NULL,'','2026-11-25 22:14:21.731000','2026-11-25 22:14:21.745000','2026-11-25 22:14:21.920000','ok',0,'ended well','{"runtime_s": 90.0, "runtime_low_s": 70.0, "runtime_high_s": 95.0, "host_peak_bytes": 4294967296, "gpu_peak_bytes": 3221225472, "gpu_utilisation_frac": null, "host_above_bytes": null, "gpu_above_bytes": null, "gpu_held_bytes": null, "gpu_type": "", "cost": 0.1, "basis": "resnet50, 3 traces", "sizes": []}','{"host_memory_bytes": 4294967296, "cpus": 1.0, "gpus": 1, "gpu_memory_bytes": 3221225472, "sharing": "shared", "gpu_utilisation_frac": 1.0, "gpu_type": "", "ports": [], "disk_bytes": 0, "may_borrow": false, "host_memory_basis": "prior", "gpu_memory_basis": "declared", "nodes": 0}','{"runtime_s": 100.0, "host_peak_bytes": 3221225472, "host_cache_bytes": null, "gpu_peak_bytes": 2147483648, "gpu_utilisation_frac": null, "cpu_s": 50.0, "cost": 0.1, "disk_peak_bytes": null}');
INSERT INTO "attempt" VALUES('e2',1,'node-a',NULL,'','2026-11-25 22:14:21.980000','2026-11-25 22:14:21.999000','2026-11-25 22:14:22.197000','ok',0,'ended well','{"runtime_s": 90.0, "runtime_low_s": 70.0, "runtime_high_s": 95.0, "host_peak_bytes": 4294967296, "gpu_peak_bytes": 3221225472, "gpu_utilisation_frac": null, "host_above_bytes": null, "gpu_above_bytes": null, "gpu_held_bytes": null, "gpu_type": "", "cost": 0.1, "basis": "resnet50, 3 traces", "sizes": []}','{"host_memory_bytes": 4294967296, "cpus": 1.0, "gpus": 1, "gpu_memory_bytes": 3221225472, "sharing": "shared", "gpu_utilisation_frac": 1.0, "gpu_type": "", "ports": [], "disk_bytes": 0, "may_borrow": false, "host_memory_basis": "prior", "gpu_memory_basis": "declared", "nodes": 0}','{"runtime_s": 80.0, "host_peak_bytes": 3221225472, "host_cache_bytes": null, "gpu_peak_bytes": 2147483648, "gpu_utilisation_frac": null, "cpu_s": 50.0, "cost": 0.1, "disk_peak_bytes": null}');
CREATE TABLE audit (
	entry_id INTEGER NOT NULL, 
	at DATETIME NOT NULL, 
	actor VARCHAR NOT NULL, 
	act VARCHAR NOT NULL, 
	subject VARCHAR NOT NULL, 
	details JSON NOT NULL, 
	PRIMARY KEY (entry_id)
);
INSERT INTO "audit" VALUES(1,'2026-11-25 22:14:22.230000','an operator (through a block, which does not say who)','setting.change','line','{"teams": "nothing \u2192 {''vision'': {''weight'': 2, ''max_gpus'': 8}}"}');
CREATE TABLE code (
	team VARCHAR(63) NOT NULL, 
	code_id VARCHAR(64) NOT NULL, 
	commit_id VARCHAR(64) NOT NULL, 
	diff TEXT NOT NULL, 
	files INTEGER NOT NULL, 
	size_bytes BIGINT NOT NULL, 
	manifest BLOB, 
	used_at DATETIME NOT NULL, 
	PRIMARY KEY (team, code_id), 
	CONSTRAINT code_size_not_negative CHECK (size_bytes >= 0 AND files > 0)
);
CREATE TABLE code_chunk (
	team VARCHAR(63) NOT NULL, 
	sha256 VARCHAR(64) NOT NULL, 
	size_bytes INTEGER NOT NULL, 
	content BLOB NOT NULL, 
	seen_at DATETIME NOT NULL, 
	PRIMARY KEY (team, sha256), 
	CONSTRAINT code_chunk_not_empty CHECK (size_bytes > 0)
);
CREATE TABLE gang_ask (
	ask_id INTEGER NOT NULL, 
	gang_id VARCHAR(36) NOT NULL, 
	attempt INTEGER NOT NULL, 
	from_rank INTEGER NOT NULL, 
	name VARCHAR NOT NULL, 
	to_rank INTEGER NOT NULL, 
	command VARCHAR NOT NULL, 
	exit_code INTEGER, 
	PRIMARY KEY (ask_id), 
	FOREIGN KEY(gang_id) REFERENCES run (run_id)
);
CREATE TABLE job_array (
	array_id VARCHAR(36) NOT NULL, 
	name VARCHAR NOT NULL, 
	owner VARCHAR NOT NULL, 
	team VARCHAR NOT NULL, 
	pool VARCHAR NOT NULL, 
	queue VARCHAR NOT NULL, 
	"key" VARCHAR, 
	job JSON NOT NULL, 
	parameters JSON NOT NULL, 
	size INTEGER NOT NULL, 
	at_most INTEGER, 
	created INTEGER NOT NULL, 
	submitted_at DATETIME NOT NULL, 
	cancelled_at DATETIME, 
	cancelled_by VARCHAR NOT NULL, 
	PRIMARY KEY (array_id), 
	CONSTRAINT size_at_least_1 CHECK (size >= 1), 
	CONSTRAINT at_most_at_least_1 CHECK (at_most >= 1), 
	CONSTRAINT created_within_size CHECK (created BETWEEN 0 AND size)
);
CREATE TABLE lease (
	lease_id INTEGER NOT NULL, 
	run_id VARCHAR(36) NOT NULL, 
	attempt INTEGER NOT NULL, 
	node VARCHAR(63) NOT NULL, 
	token VARCHAR NOT NULL, 
	host_memory_bytes BIGINT NOT NULL, 
	cpus FLOAT NOT NULL, 
	granted_at DATETIME NOT NULL, 
	expires_at DATETIME NOT NULL, 
	predicted_end_at DATETIME, 
	released_at DATETIME, gang_rank INTEGER NOT NULL DEFAULT 0 CONSTRAINT lease_rank_not_negative CHECK (gang_rank >= 0), disk_bytes BIGINT NOT NULL DEFAULT 0 CONSTRAINT lease_disk_not_negative CHECK (disk_bytes >= 0), start_by DATETIME, lent BOOLEAN DEFAULT 0 NOT NULL, 
	PRIMARY KEY (lease_id), 
	CONSTRAINT lease_attempt_at_least_1 CHECK (attempt >= 1), 
	CONSTRAINT lease_cpus_positive CHECK (cpus > 0), 
	CONSTRAINT lease_memory_positive CHECK (host_memory_bytes > 0), 
	FOREIGN KEY(run_id) REFERENCES run (run_id), 
	FOREIGN KEY(node) REFERENCES node (name)
);
INSERT INTO "lease" VALUES(1,'11111111-run',1,'node-a','5e4fdf8c57738a297239fc6621f3d192',4294967296,1.0,'2026-11-25 22:14:21.572000','2026-11-25 22:24:21.572000',NULL,NULL,0,0,NULL,0);
INSERT INTO "lease" VALUES(2,'22222222-run',1,'node-a','72f8e72a2a70334a48c9d96d257741fb',4294967296,1.0,'2026-11-25 22:14:21.731000','2026-11-25 22:24:21.731000',NULL,'2026-11-25 22:14:21.933000',0,0,NULL,0);
INSERT INTO "lease" VALUES(3,'e2',1,'node-a','092710b5a6bc020916795ef2e5f707be',4294967296,1.0,'2026-11-25 22:14:21.980000','2026-11-25 22:24:21.980000',NULL,'2026-11-25 22:14:22.215000',0,0,NULL,0);
CREATE TABLE lease_gpu (
	lease_id INTEGER NOT NULL, 
	uuid VARCHAR(96) NOT NULL, 
	memory_bytes BIGINT NOT NULL, 
	sharing VARCHAR NOT NULL, 
	utilisation_frac FLOAT NOT NULL, 
	PRIMARY KEY (lease_id, uuid), 
	CONSTRAINT sharing_known CHECK (sharing IN ('shared', 'whole')), 
	CONSTRAINT gpu_memory_not_negative CHECK (memory_bytes >= 0), 
	CONSTRAINT utilisation_not_negative CHECK (utilisation_frac >= 0), 
	FOREIGN KEY(lease_id) REFERENCES lease (lease_id)
);
INSERT INTO "lease_gpu" VALUES(1,'GPU-0',3221225472,'shared',1.0);
INSERT INTO "lease_gpu" VALUES(2,'GPU-1',3221225472,'shared',1.0);
INSERT INTO "lease_gpu" VALUES(3,'GPU-1',3221225472,'shared',1.0);
CREATE TABLE lease_port (
	lease_id INTEGER NOT NULL, 
	port INTEGER NOT NULL, 
	node VARCHAR NOT NULL, 
	PRIMARY KEY (lease_id, port), 
	CONSTRAINT port_in_range CHECK (port BETWEEN 1024 AND 65535), 
	CONSTRAINT one_lease_per_port UNIQUE (node, port), 
	FOREIGN KEY(lease_id) REFERENCES lease (lease_id)
);
CREATE TABLE node (
	name VARCHAR(63) NOT NULL, 
	pool VARCHAR NOT NULL, 
	state VARCHAR NOT NULL, 
	state_reason VARCHAR NOT NULL, 
	cpus FLOAT NOT NULL, 
	host_memory_bytes BIGINT NOT NULL, 
	gpus JSON NOT NULL, 
	reserve_cpus FLOAT NOT NULL, 
	reserve_host_memory_bytes BIGINT NOT NULL, 
	price_per_hour FLOAT NOT NULL, 
	gpu_price_per_hour FLOAT NOT NULL, 
	boot_id VARCHAR NOT NULL, 
	worker_token VARCHAR NOT NULL, 
	heartbeat_at DATETIME NOT NULL, 
	reading JSON, removed_at DATETIME, identity VARCHAR DEFAULT '' NOT NULL, files_url VARCHAR DEFAULT '' NOT NULL, files_certificate VARCHAR DEFAULT '' NOT NULL, 
	PRIMARY KEY (name), 
	CONSTRAINT state_known CHECK (state IN ('ready', 'draining', 'lost')), 
	CONSTRAINT cpus_positive CHECK (cpus > 0), 
	CONSTRAINT host_memory_positive CHECK (host_memory_bytes > 0), 
	CONSTRAINT prices CHECK (price_per_hour >= 0 AND gpu_price_per_hour >= 0), 
	CONSTRAINT reserve_within_capacity CHECK (reserve_cpus >= 0 AND reserve_host_memory_bytes >= 0 AND reserve_host_memory_bytes <= host_memory_bytes)
);
INSERT INTO "node" VALUES('node-a','gpu','ready','',8.0,68719476736,'[{"uuid": "GPU-0", "index": 0, "name": "V100", "memory_bytes": 17179869184, "reserve_bytes": 0}, {"uuid": "GPU-1", "index": 1, "name": "V100", "memory_bytes": 17179869184, "reserve_bytes": 0}]',0.0,0,0.0,0.0,'boot','node-a','2026-11-25 22:14:21.517000','{"at": "2026-01-01T00:00:00Z", "host": {"memory_bytes": 68719476736, "used_bytes": 4294967296, "cpu_frac": 0.25, "disk_free_bytes": 107374182400}, "gpus": [{"uuid": "GPU-0", "index": 0, "name": "V100", "memory_bytes": 17179869184, "used_bytes": 2147483648, "utilisation_frac": 0.5, "temperature_c": 50.0, "power_w": 200.0, "pcie_rx_bytes_per_s": 1000000000.0, "pcie_tx_bytes_per_s": 2000000000.0, "nvlink_rx_bytes_per_s": 3000000000.0, "nvlink_tx_bytes_per_s": 4000000000.0, "processes": [], "driver_bytes": 0}, {"uuid": "GPU-1", "index": 1, "name": "V100", "memory_bytes": 17179869184, "used_bytes": 2147483648, "utilisation_frac": 0.5, "temperature_c": 50.0, "power_w": 200.0, "pcie_rx_bytes_per_s": 1000000000.0, "pcie_tx_bytes_per_s": 2000000000.0, "nvlink_rx_bytes_per_s": 3000000000.0, "nvlink_tx_bytes_per_s": 4000000000.0, "processes": [], "driver_bytes": 0}], "gpu_error": "", "lost_gpus": {}, "closed": "", "run_host_bytes": {}}',NULL,'','','');
INSERT INTO "node" VALUES('node-b','gpu','ready','',8.0,68719476736,'[{"uuid": "GPU-2", "index": 2, "name": "V100", "memory_bytes": 17179869184, "reserve_bytes": 0}]',0.0,0,0.0,0.0,'boot','node-b','2026-11-25 22:14:21.523000','{"at": "2026-01-01T00:00:00Z", "host": {"memory_bytes": 68719476736, "used_bytes": 4294967296, "cpu_frac": 0.25, "disk_free_bytes": 107374182400}, "gpus": [], "gpu_error": "", "lost_gpus": {"GPU-2": "NVML error 15"}, "closed": "", "run_host_bytes": {}}',NULL,'','','');
CREATE TABLE notice (
	notice_id INTEGER NOT NULL, 
	run_id VARCHAR(36), 
	array_id VARCHAR(36), 
	kind VARCHAR NOT NULL, 
	block VARCHAR NOT NULL, 
	made_at DATETIME NOT NULL, 
	taken_at DATETIME, 
	error VARCHAR NOT NULL, 
	PRIMARY KEY (notice_id), 
	CONSTRAINT notice_kind_known CHECK (kind IN ('started', 'ended', 'array_ended')), 
	CONSTRAINT notice_of_one CHECK ((run_id IS NULL) <> (array_id IS NULL)), 
	FOREIGN KEY(run_id) REFERENCES run (run_id), 
	FOREIGN KEY(array_id) REFERENCES job_array (array_id)
);
CREATE TABLE progress (
	run_id VARCHAR(36) NOT NULL, 
	attempt INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	t_s FLOAT NOT NULL, 
	iteration BIGINT, 
	epoch FLOAT, 
	total BIGINT, 
	metrics JSON NOT NULL, 
	PRIMARY KEY (run_id, attempt, number), 
	CONSTRAINT number_at_least_0 CHECK (number >= 0), 
	FOREIGN KEY(run_id) REFERENCES run (run_id)
);
INSERT INTO "progress" VALUES('11111111-run',1,0,0.1,10,NULL,1000,'{"loss": 1.0}');
INSERT INTO "progress" VALUES('11111111-run',1,1,0.2,20,NULL,1000,'{"loss": 0.5}');
INSERT INTO "progress" VALUES('11111111-run',1,2,3.00000000000000044408e-01,30,NULL,1000,'{"loss": 0.3333333333333333}');
INSERT INTO "progress" VALUES('11111111-run',1,3,0.4,40,NULL,1000,'{"loss": 0.25}');
INSERT INTO "progress" VALUES('11111111-run',1,4,0.5,50,NULL,1000,'{"loss": 0.2}');
INSERT INTO "progress" VALUES('22222222-run',1,0,0.1,10,NULL,1000,'{"loss": 1.0}');
INSERT INTO "progress" VALUES('22222222-run',1,1,0.2,20,NULL,1000,'{"loss": 0.5}');
INSERT INTO "progress" VALUES('22222222-run',1,2,3.00000000000000044408e-01,30,NULL,1000,'{"loss": 0.3333333333333333}');
INSERT INTO "progress" VALUES('22222222-run',1,3,0.4,40,NULL,1000,'{"loss": 0.25}');
INSERT INTO "progress" VALUES('22222222-run',1,4,0.5,50,NULL,1000,'{"loss": 0.2}');
INSERT INTO "progress" VALUES('e2',1,0,0.1,10,NULL,1000,'{"loss": 1.0}');
INSERT INTO "progress" VALUES('e2',1,1,0.2,20,NULL,1000,'{"loss": 0.5}');
INSERT INTO "progress" VALUES('e2',1,2,3.00000000000000044408e-01,30,NULL,1000,'{"loss": 0.3333333333333333}');
INSERT INTO "progress" VALUES('e2',1,3,0.4,40,NULL,1000,'{"loss": 0.25}');
INSERT INTO "progress" VALUES('e2',1,4,0.5,50,NULL,1000,'{"loss": 0.2}');
CREATE TABLE run (
	run_id VARCHAR(36) NOT NULL, 
	name VARCHAR NOT NULL, 
	owner VARCHAR NOT NULL, 
	team VARCHAR NOT NULL, 
	pool VARCHAR NOT NULL, 
	queue VARCHAR NOT NULL, 
	priority INTEGER NOT NULL, 
	preempted_for VARCHAR(36), 
	preemptions INTEGER NOT NULL, 
	job JSON NOT NULL, 
	state VARCHAR NOT NULL, 
	attempt INTEGER NOT NULL, 
	resource VARCHAR, 
	reason VARCHAR NOT NULL, 
	expected_start_at DATETIME, 
	node VARCHAR(63), 
	runtime VARCHAR, 
	container VARCHAR, 
	submitted_at DATETIME NOT NULL, 
	claimed_at DATETIME, 
	started_at DATETIME, 
	ended_at DATETIME, 
	exit_kind VARCHAR, 
	exit_code INTEGER, 
	exit_message VARCHAR NOT NULL, 
	prediction JSON, 
	demand JSON, 
	demand_override JSON, 
	measurement JSON, gang_id VARCHAR(36) REFERENCES run (run_id), gang_rank INTEGER NOT NULL DEFAULT 0 CONSTRAINT only_ranks_have_a_gang CHECK ((gang_id IS NULL) = (gang_rank = 0)), told_end_at DATETIME, suspended_at DATETIME, flow_starts INTEGER DEFAULT '0' NOT NULL, flow_starts_since DATETIME, tag FLOAT, promised_at DATETIME, array_id VARCHAR(36), array_index INTEGER CONSTRAINT members_have_an_index CHECK ((array_id IS NULL) = (array_index IS NULL)), after_run_id VARCHAR(63), after_when VARCHAR, ready_attempt INTEGER, place VARCHAR, rows_removed_at DATETIME, 
	PRIMARY KEY (run_id), 
	CONSTRAINT ended_has_its_time CHECK ((state = 'ended') = (ended_at IS NOT NULL)), 
	CONSTRAINT exit_kind_known CHECK (exit_kind IS NULL OR exit_kind IN ('ok', 'failed', 'out_of_memory', 'gpu_out_of_memory', 'timed_out', 'cancelled', 'infrastructure', 'preempted', 'refused')), 
	CONSTRAINT resource_known CHECK (resource IS NULL OR resource IN ('host_memory', 'cpus', 'gpus', 'gpu_memory', 'ports', 'node', 'quota', 'turn')), 
	CONSTRAINT ended_has_its_exit CHECK (state <> 'ended' OR exit_kind IS NOT NULL), 
	CONSTRAINT state_known CHECK (state IN ('waiting', 'claimed', 'running', 'ended')), 
	CONSTRAINT granted_has_its_node CHECK (state NOT IN ('claimed', 'running') OR node IS NOT NULL), 
	CONSTRAINT attempt_at_least_1 CHECK (attempt >= 1), 
	CONSTRAINT preemptions_are_attempts CHECK (preemptions BETWEEN 0 AND attempt), 
	FOREIGN KEY(preempted_for) REFERENCES run (run_id), 
	FOREIGN KEY(node) REFERENCES node (name)
);
INSERT INTO "run" VALUES('w1','brave-w1','me','t','gpu','',0,'22222222-run',0,'{"name": "digits", "image": "python:3.11", "command": ["python", "train.py"]}','waiting',1,'gpu_memory','too little',NULL,NULL,NULL,NULL,'2026-11-25 22:14:21.525000',NULL,NULL,NULL,NULL,NULL,'',NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "run" VALUES('w2','brave-w2','me','t','gpu','',0,NULL,0,'{"name": "digits", "image": "python:3.11", "command": ["python", "train.py"]}','waiting',1,'cpus','too little',NULL,NULL,NULL,NULL,'2026-11-25 22:14:21.535000',NULL,NULL,NULL,NULL,NULL,'',NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "run" VALUES('11111111-run','brave-11111111-run','me','t','gpu','',0,NULL,0,'{"name": "digits", "image": "python:3.11", "command": ["python", "train.py"]}','running',1,NULL,'',NULL,'node-a','process','c','2026-11-25 22:14:21.542000','2026-11-25 22:14:21.572000','2026-11-25 22:14:21.586000',NULL,NULL,NULL,'','{"runtime_s": 90.0, "runtime_low_s": 70.0, "runtime_high_s": 95.0, "host_peak_bytes": 4294967296, "gpu_peak_bytes": 3221225472, "gpu_utilisation_frac": null, "host_above_bytes": null, "gpu_above_bytes": null, "gpu_held_bytes": null, "gpu_type": "", "cost": 0.1, "basis": "resnet50, 3 traces", "sizes": []}','{"host_memory_bytes": 4294967296, "cpus": 1.0, "gpus": 1, "gpu_memory_bytes": 3221225472, "sharing": "shared", "gpu_utilisation_frac": 1.0, "gpu_type": "", "ports": [], "disk_bytes": 0, "may_borrow": false, "host_memory_basis": "prior", "gpu_memory_basis": "declared", "nodes": 0}',NULL,NULL,NULL,0,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "run" VALUES('22222222-run','brave-22222222-run','me','t','gpu','',0,NULL,0,'{"name": "digits", "image": "python:3.11", "command": ["python", "train.py"]}','ended',1,NULL,'',NULL,'node-a','process','c','2026-11-25 22:14:21.718000','2026-11-25 22:14:21.731000','2026-11-25 22:14:21.745000','2026-11-25 22:14:21.922000','ok',0,'ended well','{"runtime_s": 90.0, "runtime_low_s": 70.0, "runtime_high_s": 95.0, "host_peak_bytes": 4294967296, "gpu_peak_bytes": 3221225472, "gpu_utilisation_frac": null, "host_above_bytes": null, "gpu_above_bytes": null, "gpu_held_bytes": null, "gpu_type": "", "cost": 0.1, "basis": "resnet50, 3 traces", "sizes": []}','{"host_memory_bytes": 4294967296, "cpus": 1.0, "gpus": 1, "gpu_memory_bytes": 3221225472, "sharing": "shared", "gpu_utilisation_frac": 1.0, "gpu_type": "", "ports": [], "disk_bytes": 0, "may_borrow": false, "host_memory_basis": "prior", "gpu_memory_basis": "declared", "nodes": 0}',NULL,'{"runtime_s": 100.0, "host_peak_bytes": 3221225472, "host_cache_bytes": null, "gpu_peak_bytes": 2147483648, "gpu_utilisation_frac": null, "cpu_s": 50.0, "cost": 0.1, "disk_peak_bytes": null}',NULL,0,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "run" VALUES('e2','brave-e2','me','t','gpu','',0,NULL,0,'{"name": "digits", "image": "python:3.11", "command": ["python", "train.py"]}','ended',1,NULL,'',NULL,'node-a','process','c','2026-11-25 22:14:21.946000','2026-11-25 22:14:21.980000','2026-11-25 22:14:21.999000','2026-11-25 22:14:22.198000','ok',0,'ended well','{"runtime_s": 90.0, "runtime_low_s": 70.0, "runtime_high_s": 95.0, "host_peak_bytes": 4294967296, "gpu_peak_bytes": 3221225472, "gpu_utilisation_frac": null, "host_above_bytes": null, "gpu_above_bytes": null, "gpu_held_bytes": null, "gpu_type": "", "cost": 0.1, "basis": "resnet50, 3 traces", "sizes": []}','{"host_memory_bytes": 4294967296, "cpus": 1.0, "gpus": 1, "gpu_memory_bytes": 3221225472, "sharing": "shared", "gpu_utilisation_frac": 1.0, "gpu_type": "", "ports": [], "disk_bytes": 0, "may_borrow": false, "host_memory_basis": "prior", "gpu_memory_basis": "declared", "nodes": 0}',NULL,'{"runtime_s": 80.0, "host_peak_bytes": 3221225472, "host_cache_bytes": null, "gpu_peak_bytes": 2147483648, "gpu_utilisation_frac": null, "cpu_s": 50.0, "cost": 0.1, "disk_peak_bytes": null}',NULL,0,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE setting (
	name VARCHAR(128) NOT NULL, 
	document JSON NOT NULL, 
	updated_at DATETIME NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "setting" VALUES('line','{"teams": {"vision": {"weight": 2, "max_gpus": 8}}}','2026-11-25 22:14:22.230000');
CREATE TABLE staged (
	node VARCHAR(63) NOT NULL, 
	"key" VARCHAR(64) NOT NULL, 
	uri VARCHAR NOT NULL, 
	size_bytes BIGINT NOT NULL, 
	sha256 VARCHAR NOT NULL, 
	used_at DATETIME NOT NULL, 
	PRIMARY KEY (node, "key"), 
	CONSTRAINT staged_size_not_negative CHECK (size_bytes >= 0)
);
CREATE TABLE staged_use (
	node VARCHAR(63) NOT NULL, 
	"key" VARCHAR(64) NOT NULL, 
	run_id VARCHAR(36) NOT NULL, 
	PRIMARY KEY (node, "key", run_id)
);
CREATE TABLE staging (
	run_id VARCHAR(36) NOT NULL, 
	attempt INTEGER NOT NULL, 
	name VARCHAR(63) NOT NULL, 
	node VARCHAR(63) NOT NULL, 
	uri VARCHAR NOT NULL, 
	size_bytes BIGINT NOT NULL, 
	took_s FLOAT NOT NULL, 
	was_there BOOLEAN NOT NULL, listing VARCHAR DEFAULT '' NOT NULL, from_nodes VARCHAR DEFAULT '' NOT NULL, peer_bytes BIGINT DEFAULT '0' NOT NULL, 
	PRIMARY KEY (run_id, attempt, name), 
	CONSTRAINT staging_size_not_negative CHECK (size_bytes >= 0), 
	FOREIGN KEY(run_id) REFERENCES run (run_id)
);
CREATE TABLE standing (
	run_id VARCHAR(36) NOT NULL, 
	attempt INTEGER NOT NULL, 
	at DATETIME NOT NULL, 
	elapsed_s FLOAT NOT NULL, 
	done_frac FLOAT, 
	remaining_s FLOAT, 
	low_s FLOAT, 
	high_s FLOAT, phase VARCHAR DEFAULT '' NOT NULL, 
	PRIMARY KEY (run_id), 
	CONSTRAINT standing_share CHECK (done_frac BETWEEN 0 AND 1), 
	CONSTRAINT standing_remaining_not_negative CHECK (remaining_s >= 0), 
	FOREIGN KEY(run_id) REFERENCES run (run_id)
);
INSERT INTO "standing" VALUES('11111111-run',1,'2026-11-25 22:14:21.699000',0.5,0.05,9.5,8.0,11.0,'');
INSERT INTO "standing" VALUES('22222222-run',1,'2026-11-25 22:14:21.838000',0.5,0.05,9.5,8.0,11.0,'');
INSERT INTO "standing" VALUES('e2',1,'2026-11-25 22:14:22.110000',0.5,0.05,9.5,8.0,11.0,'');
CREATE TABLE start_forecast (
	run_id VARCHAR(36) NOT NULL, 
	said_at DATETIME NOT NULL, 
	planned_s FLOAT NOT NULL, 
	earliest_at DATETIME NOT NULL, 
	expected_at DATETIME NOT NULL, 
	latest_at DATETIME NOT NULL, 
	gpus INTEGER NOT NULL, 
	ahead INTEGER NOT NULL, 
	at_submission BOOLEAN NOT NULL, 
	started_at DATETIME, planned_low_s FLOAT DEFAULT '0' NOT NULL, planned_high_s FLOAT DEFAULT '0' NOT NULL, 
	PRIMARY KEY (run_id, said_at), 
	CONSTRAINT gpus_at_least_0 CHECK (gpus >= 0), 
	CONSTRAINT ahead_at_least_0 CHECK (ahead >= 0), 
	CONSTRAINT planned_s_at_least_0 CHECK (planned_s >= 0)
);
CREATE TABLE step (
	run_id VARCHAR(36) NOT NULL, 
	attempt INTEGER NOT NULL, 
	name VARCHAR NOT NULL, 
	state VARCHAR NOT NULL, 
	started_at DATETIME NOT NULL, 
	ended_at DATETIME, 
	message VARCHAR NOT NULL, 
	PRIMARY KEY (run_id, attempt, name), 
	CONSTRAINT state_known CHECK (state IN ('running', 'done', 'failed')), 
	FOREIGN KEY(run_id) REFERENCES run (run_id)
);
INSERT INTO "step" VALUES('11111111-run',1,'stage_data','running','2026-11-25 22:14:21.597000',NULL,'');
INSERT INTO "step" VALUES('11111111-run',1,'admit','running','2026-11-25 22:14:21.619000',NULL,'');
INSERT INTO "step" VALUES('11111111-run',1,'train','running','2026-11-25 22:14:21.632000',NULL,'');
INSERT INTO "step" VALUES('11111111-run',1,'update_estimates','running','2026-11-25 22:14:21.649000',NULL,'');
INSERT INTO "step" VALUES('11111111-run',1,'clean_up','running','2026-11-25 22:14:21.660000',NULL,'');
INSERT INTO "step" VALUES('22222222-run',1,'stage_data','done','2026-11-25 22:14:21.754000','2026-11-25 22:14:21.871000','well');
INSERT INTO "step" VALUES('22222222-run',1,'admit','done','2026-11-25 22:14:21.760000','2026-11-25 22:14:21.887000','well');
INSERT INTO "step" VALUES('22222222-run',1,'train','done','2026-11-25 22:14:21.767000','2026-11-25 22:14:21.894000','well');
INSERT INTO "step" VALUES('22222222-run',1,'update_estimates','done','2026-11-25 22:14:21.784000','2026-11-25 22:14:21.902000','well');
INSERT INTO "step" VALUES('22222222-run',1,'clean_up','done','2026-11-25 22:14:21.799000','2026-11-25 22:14:21.911000','well');
INSERT INTO "step" VALUES('e2',1,'stage_data','done','2026-11-25 22:14:22.018000','2026-11-25 22:14:22.154000','well');
INSERT INTO "step" VALUES('e2',1,'admit','done','2026-11-25 22:14:22.033000','2026-11-25 22:14:22.167000','well');
INSERT INTO "step" VALUES('e2',1,'train','done','2026-11-25 22:14:22.050000','2026-11-25 22:14:22.175000','well');
INSERT INTO "step" VALUES('e2',1,'update_estimates','done','2026-11-25 22:14:22.066000','2026-11-25 22:14:22.182000','well');
INSERT INTO "step" VALUES('e2',1,'clean_up','done','2026-11-25 22:14:22.080000','2026-11-25 22:14:22.189000','well');
CREATE TABLE stored (
	run_id VARCHAR(36) NOT NULL, 
	attempt INTEGER NOT NULL, 
	"key" VARCHAR NOT NULL, 
	files INTEGER NOT NULL, 
	size_bytes BIGINT NOT NULL, 
	stored_at DATETIME NOT NULL, 
	removed_at DATETIME, 
	note VARCHAR DEFAULT '' NOT NULL, 
	PRIMARY KEY (run_id, attempt), 
	CONSTRAINT stored_size_not_negative CHECK (size_bytes >= 0 AND files >= 0), 
	FOREIGN KEY(run_id) REFERENCES run (run_id)
);
CREATE TABLE submission (
	"key" VARCHAR(400) NOT NULL, 
	owner VARCHAR(63) NOT NULL, 
	team VARCHAR(63) NOT NULL, 
	at DATETIME NOT NULL, 
	PRIMARY KEY ("key")
);
CREATE TABLE team_uids (
	team VARCHAR(63) NOT NULL, 
	first INTEGER NOT NULL, 
	last INTEGER NOT NULL, 
	allotted_at DATETIME NOT NULL, 
	PRIMARY KEY (team), 
	CONSTRAINT uids_are_a_range CHECK (first > 0 AND last >= first), 
	CONSTRAINT uids_have_their_team CHECK (length(team) > 0), 
	UNIQUE (first), 
	UNIQUE (last)
);
CREATE TABLE telemetry (
	point_id INTEGER NOT NULL, 
	node VARCHAR(63) NOT NULL, 
	gpu VARCHAR(96) NOT NULL, 
	period_s INTEGER NOT NULL, 
	at DATETIME NOT NULL, 
	used_bytes BIGINT, 
	busy_frac FLOAT, 
	disk_free_bytes BIGINT, 
	temperature_c FLOAT, 
	power_w FLOAT, 
	pcie_rx_bytes_per_s FLOAT, 
	pcie_tx_bytes_per_s FLOAT, 
	nvlink_rx_bytes_per_s FLOAT, 
	nvlink_tx_bytes_per_s FLOAT, 
	run_bytes JSON NOT NULL, 
	PRIMARY KEY (point_id), 
	CONSTRAINT telemetry_period_known CHECK (period_s IN (1, 60)), 
	CONSTRAINT telemetry_used_not_negative CHECK (used_bytes >= 0)
);
INSERT INTO "telemetry" VALUES(1,'node-a','GPU-0',1,'2026-11-25 22:14:21.714000',2147483648,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"11111111-run": 2147483648}');
INSERT INTO "telemetry" VALUES(2,'node-a','GPU-1',1,'2026-11-25 22:14:21.857000',2147483648,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"22222222-run": 2147483648}');
INSERT INTO "telemetry" VALUES(3,'node-a','GPU-1',1,'2026-11-25 22:14:22.136000',2147483648,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"e2": 2147483648}');
CREATE TABLE trace (
	trace_id INTEGER NOT NULL, 
	run_id VARCHAR(64), 
	source VARCHAR NOT NULL, 
	network VARCHAR NOT NULL, 
	gpu_type VARCHAR NOT NULL, 
	gpus INTEGER NOT NULL, 
	exit VARCHAR NOT NULL, 
	recorded_at DATETIME NOT NULL, 
	document JSON NOT NULL, 
	PRIMARY KEY (trace_id), 
	CONSTRAINT trace_exit_known CHECK (exit IN ('ok', 'oom', 'failed')), 
	CONSTRAINT gpus_at_least_0 CHECK (gpus >= 0), 
	UNIQUE (run_id)
);
INSERT INTO "trace" VALUES(1,'22222222-run','site','resnet50','v100',1,'ok','2026-11-25 22:14:21.937000','{"network": "resnet50", "gpu_type": "v100", "gpus": 1, "batch_size": 32, "iteration_s": null, "epoch_s": null, "runtime_s": 100.0, "samples_per_s": null, "nodes": 1, "precision": "fp32", "framework": "", "data_threads": null, "dataset_bytes": null, "dataset_samples": null, "epochs": null, "iterations": null, "host_peak_bytes": null, "gpu_peak_bytes": null, "cpus": null, "exit": "ok", "started_at": null, "recipe": "", "flops": null, "params": null, "activations": null, "layers": null, "source": "site", "run_id": "22222222-run", "metrics": {}}');
INSERT INTO "trace" VALUES(2,'e2','site','resnet50','v100',1,'ok','2026-11-25 22:14:22.225000','{"network": "resnet50", "gpu_type": "v100", "gpus": 1, "batch_size": 32, "iteration_s": null, "epoch_s": null, "runtime_s": 80.0, "samples_per_s": null, "nodes": 1, "precision": "fp32", "framework": "", "data_threads": null, "dataset_bytes": null, "dataset_samples": null, "epochs": null, "iterations": null, "host_peak_bytes": null, "gpu_peak_bytes": null, "cpus": null, "exit": "ok", "started_at": null, "recipe": "", "flops": null, "params": null, "activations": null, "layers": null, "source": "site", "run_id": "e2", "metrics": {}}');
CREATE TABLE upload (
	team VARCHAR(63) NOT NULL, 
	name VARCHAR(63) NOT NULL, 
	content_id VARCHAR(64) NOT NULL, 
	owner VARCHAR(63) NOT NULL, 
	is_directory BOOLEAN NOT NULL, 
	files INTEGER NOT NULL, 
	size_bytes BIGINT NOT NULL, 
	manifest BLOB NOT NULL, 
	put_at DATETIME NOT NULL, 
	used_at DATETIME NOT NULL, 
	PRIMARY KEY (team, name), 
	CONSTRAINT upload_not_empty CHECK (size_bytes > 0 AND files > 0)
);
CREATE TABLE warning (
	run_id VARCHAR(36) NOT NULL, 
	attempt INTEGER NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	gpu VARCHAR(96) NOT NULL, 
	began_at DATETIME NOT NULL, 
	ended_at DATETIME, 
	stopped_at DATETIME, 
	measured FLOAT NOT NULL, 
	"limit" FLOAT NOT NULL, 
	text VARCHAR NOT NULL, 
	PRIMARY KEY (run_id, attempt, kind, gpu), 
	CONSTRAINT kind_known CHECK (kind IN ('gpu_unused', 'over_grant', 'starved', 'gpu_lost')), 
	FOREIGN KEY(run_id) REFERENCES run (run_id)
);
INSERT INTO "warning" VALUES('11111111-run',1,'gpu_unused','GPU-0','2026-11-25 22:14:21.706000',NULL,NULL,0.0,0.02,'idles');
INSERT INTO "warning" VALUES('22222222-run',1,'gpu_unused','GPU-1','2026-11-25 22:14:21.849000','2026-11-25 22:14:21.922000',NULL,0.0,0.02,'idles');
INSERT INTO "warning" VALUES('e2',1,'gpu_unused','GPU-1','2026-11-25 22:14:22.124000','2026-11-25 22:14:22.198000',NULL,0.0,0.02,'idles');
CREATE INDEX run_by_state ON run (state, pool);
CREATE INDEX live_leases_of_node ON lease (node) WHERE released_at IS NULL;
CREATE INDEX telemetry_by_time ON telemetry (node, period_s, at);
CREATE UNIQUE INDEX one_run_per_rank ON run (gang_id, attempt, gang_rank);
CREATE UNIQUE INDEX one_live_lease_per_rank ON lease (run_id, gang_rank) WHERE released_at IS NULL;
CREATE INDEX run_by_end ON run (ended_at);
CREATE INDEX run_by_told_end ON run (state, told_end_at);
CREATE INDEX audit_by_time ON audit (at);
CREATE TRIGGER audit_refuses_update BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'rows of the audit table are never changed or deleted'); END;
CREATE TRIGGER audit_refuses_delete BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'rows of the audit table are never changed or deleted'); END;
CREATE INDEX start_forecast_by_start ON start_forecast (started_at, said_at);
CREATE INDEX array_by_pool ON job_array (pool, submitted_at);
CREATE UNIQUE INDEX one_array_per_key ON job_array ("key");
CREATE UNIQUE INDEX one_run_per_member ON run (array_id, array_index);
CREATE INDEX notice_by_run ON notice (run_id);
CREATE INDEX notice_untaken ON notice (notice_id) WHERE taken_at IS NULL;
CREATE INDEX staging_by_node ON staging (node);
CREATE UNIQUE INDEX one_ask_of_a_name ON gang_ask (gang_id, attempt, from_rank, name);
CREATE INDEX run_with_its_rows ON run (ended_at) WHERE rows_removed_at IS NULL;
COMMIT;
