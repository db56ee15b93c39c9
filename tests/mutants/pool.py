"""Mutants of environments in worker processes."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

POOL = "envs/pool.py"
WORKER = "envs/pool_worker.py"
MEMORY = "envs/pool_memory.py"
COLLECTION = "runtime/population/collection.py"
EVALUATION = "runtime/population/evaluation.py"
TESTS = "tests/envs/test_pool.py"
POPULATIONS = "tests/study/test_population_worker.py"

MUTANTS = [
    Mutant(
        "a process steps environments that are not active",
        WORKER,
        "chosen = [index for index in indices if group.arrays.active[index]]",
        "chosen = list(indices)",
        f"{TESTS} -k inactive",
    ),
    Mutant(
        "the final observation is the first one of the next episode",
        WORKER,
        "            arrays.final_observations[index] = obs\n"
        "            if info:\n"
        '                kept = {"final_info": info}\n'
        "            if self.autoreset:\n"
        "                obs, info = env.reset()",
        "            if info:\n"
        '                kept = {"final_info": info}\n'
        "            if self.autoreset:\n"
        "                obs, info = env.reset()\n"
        "            arrays.final_observations[index] = obs",
        f"{TESTS} -k equal_those",
    ),
    Mutant(
        "a step returns the action mask before the reset",
        WORKER,
        "                obs, info = env.reset()\n        if ACTION_MASK",
        "                obs, _ = env.reset()\n        if ACTION_MASK",
        f"{TESTS} -k equal_those",
    ),
    Mutant(
        "episodes restart although the caller resets them",
        WORKER,
        "            if self.autoreset:",
        "            if True:",
        f"{TESTS} -k without_autoreset",
    ),
    Mutant(
        "an action that an environment keeps changes with the next step",
        WORKER,
        "env.step(actions[index].copy())",
        "env.step(actions[index])",
        f"{TESTS} -k equal_those",
    ),
    Mutant(
        "an error of an environment is swallowed",
        WORKER,
        "            answer.errors[index] = _failure(error)",
        "            _failure(error)",
        f"{TESTS} -k reaches_only",
    ),
    Mutant(
        "a result that cannot be sent is dropped without an error",
        WORKER,
        "        errors = answer.errors | failed",
        "        errors = answer.errors",
        f"{TESTS} -k reaches_only",
    ),
    Mutant(
        "a failure to receive memory ends the process silently",
        WORKER,
        "return _for_each(indices[:1], lambda _: self._attach(group, values))",
        "return Answer({}, self._attach(group, values) or {})",
        f"{TESTS} -k cannot_be_received",
    ),
    Mutant(
        "the memory of closed environments stays in their process",
        WORKER,
        "                del self._groups[number]  # and its memory",
        "                pass",
        f"{TESTS} -k environments_are_closed",
    ),
    Mutant(
        "a call after close ends the process",
        WORKER,
        "        group = self._groups.get(number)\n",
        "        group = self._groups[number] if kind != MAKE else None\n",
        f"{TESTS} -k after_close",
    ),
    Mutant(
        "a process that hangs in close outlives its trainer",
        WORKER,
        "            _end_later()\n",
        "            pass\n",
        f"{TESTS} -k trainer_is_killed",
    ),
    Mutant(
        "a process ends because its core is not available",
        WORKER,
        "        with suppress(OSError):  # the core was taken away from this process",
        "        with suppress(ValueError):",
        f"{TESTS} -k not_available_any_more",
    ),
    Mutant(
        "actions are read with another type",
        WORKER,
        "self.arrays.typed_actions(code.decode())",
        'self.arrays.typed_actions("f")',
        f"{TESTS} -k keep_their_values",
    ),
    Mutant(
        "rows of actions overlap",
        MEMORY,
        "        row = self._layout.action_bytes\n        strides",
        "        row = self._layout.action_bytes // 4\n        strides",
        f"{TESTS} -k keep_their_values",
    ),
    Mutant(
        "a part returns the results of the first environments",
        POOL,
        "        self.rewards = arrays.rewards[start:stop]",
        "        self.rewards = arrays.rewards[: stop - start]",
        f"{TESTS} -k parts_are_views",
    ),
    Mutant(
        "a part returns the infos of other environments",
        POOL,
        "own, info = index - self._start, request.results.get(index, {})",
        "own, info = index - self._start, request.results.get(index - self._start, {})",
        f"{TESTS} -k parts_are_views",
    ),
    Mutant(
        "a part raises the errors of other environments",
        POOL,
        "            if start <= index < stop:\n                text",
        "            if True:\n                text",
        f"{TESTS} -k reaches_only",
    ),
    Mutant(
        "a part counts from the start of the whole group",
        POOL,
        "return PooledEnvs(self._group, self._start + start, self._start + stop)",
        "return PooledEnvs(self._group, start, stop)",
        f"{TESTS} -k parts_of_parts",
    ),
    Mutant(
        "a part resets with the seeds of other environments",
        POOL,
        "(chosen[start - first : stop - first], options)",
        "(chosen[start:stop], options)",
        f"{TESTS} -k own_seed",
    ),
    Mutant(
        "infos of an earlier end are returned for inactive environments",
        POOL,
        "            if request.active is not None and not request.active[index - request.start]:\n"
        "                continue\n",
        "",
        f"{TESTS} -k inactive",
    ),
    Mutant(
        "the active environments of all processes are those of the first",
        POOL,
        "np.array(active[start - self._start : stop - self._start], dtype=bool)",
        "np.array(active[: stop - start], dtype=bool)",
        f"{TESTS} -k inactive",
    ),
    Mutant(
        "a step starts before the results of the last one were received",
        POOL,
        "        self._finish()\n        actions = np.asarray(actions)",
        "        actions = np.asarray(actions)",
        f"{TESTS} -k written_during",
    ),
    Mutant(
        "flags change after a step has returned them",
        POOL,
        "self.terminations.copy(), self.truncations.copy()",
        "self.terminations, self.truncations",
        f"{TESTS} -k survive",
    ),
    Mutant(
        "both sides of a pipe wait for the other to read",
        POOL,
        "            while self._pending and not self.is_lost:\n                self._receive()\n",
        "",
        f"{TESTS} -k long_infos",
    ),
    Mutant(
        "environments lose their infos if those of another cannot be read",
        POOL,
        "dict.fromkeys(range(request.start, request.stop), failure)",
        "{request.start: failure}",
        f"{TESTS} -k cannot_be_read",
    ),
    Mutant(
        "environments with other spaces share arrays",
        POOL,
        "            if other.fn != self.spaces:",
        "            if False:",
        f"{TESTS} -k other_spaces",
    ),
    Mutant(
        "a pool ends while its environments are in use",
        POOL,
        "        self._pool = pool  # without references, its workers would end",
        "        del pool",
        f"{TESTS} -k keep_their_pool",
    ),
    Mutant(
        "environments are created in a process that has ended",
        POOL,
        "[worker for worker in self.workers if not worker.has_died()]",
        "list(self.workers)",
        f"{TESTS} -k processes_that_are_left",
    ),
    Mutant(
        "an idle process that has ended is not noticed",
        POOL,
        "                self.is_lost = self.connection.poll()  # an idle process sends nothing",
        "                pass",
        f"{TESTS} -k processes_that_are_left",
    ),
    Mutant(
        "a killed process is explained by a missing guard of the main module",
        POOL,
        "        if not self._has_answered and code == 1:",
        "        if not self._has_answered:",
        f"{TESTS} -k killed_during_creation",
    ),
    Mutant(
        "processes are bound to the core of the trainer",
        POOL,
        "own = list(cores[1 : processes + 1])",
        "own = list(cores[:processes])",
        f"{TESTS} -k bound_to_cores",
    ),
    Mutant(
        "the descriptor of shared memory stays open",
        POOL,
        "        finally:\n            memory.close()",
        "        finally:\n            pass",
        f"{TESTS} -k environments_are_closed",
    ),
    Mutant(
        "members whose environments did not step store a transition",
        COLLECTION,
        "self.envs.step_async(actions, None if active.all() else active)",
        "self.envs.step_async(actions)",
        f"{POPULATIONS} -k resume_exactly",
    ),
    Mutant(
        "a killed process fails members that evaluate in it",
        EVALUATION,
        "if self._envs is not None and self._envs.has_lost_process:",
        "if False:",
        f"{POPULATIONS} -k killed_process_fails",
    ),
    Mutant(
        "an environment that does not fit in a process ends the population",
        COLLECTION,
        "        except CaptureError as error:",
        "        except ZeroDivisionError as error:",
        f"{POPULATIONS} -k cannot_be_moved",
    ),
    Mutant(
        "a population in which all members fail in one step ends with an error of its own",
        "runtime/population/replays.py",
        "np.asarray(members, dtype=np.int64)",
        "np.asarray(members)",
        "tests/runtime/population/test_replays.py",
    ),
]
