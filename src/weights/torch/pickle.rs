//! Reading a pickle as data: a small machine with a stack and a memory that builds dicts, tuples, numbers, texts and
//! descriptions of tensors, and refuses everything else by name.

use std::collections::HashMap;

use super::error::PickleFault;
use super::value::{Global, Objects, StorageRef, TensorRef, Value};

/// Values that may wait on the stack. Python's writer hands on a thousand at a time.
const MAX_STACK: usize = 1 << 16;
/// Values that may be remembered.
const MAX_MEMO: usize = 1 << 20;
/// Open marks.
const MAX_MARKS: usize = 1 << 10;
/// Objects of each kind.
const MAX_OBJECTS: usize = 1 << 20;
/// Dimensions of a tensor; more than a shape has, which is checked later.
const MAX_DIMS: usize = 16;
/// The longest name of a class or function, in bytes.
const MAX_NAME_BYTES: usize = 256;
/// Longest name of a storage: numbers in practice.
const MAX_KEY_BYTES: usize = 64;

/// Reads one pickle from the start of `bytes`: its value, and how long it is.
///
/// # Errors
/// The place and the fault.
pub(super) fn load(bytes: &[u8], objects: &mut Objects) -> Result<(Value, usize), (usize, PickleFault)> {
    let mut machine = Machine {
        bytes,
        at: 0,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
        objects,
    };
    loop {
        let at = machine.at;
        match machine.step() {
            Ok(None) => {}
            Ok(Some(value)) => return Ok((value, machine.at)),
            Err(fault) => return Err((at, fault)),
        }
    }
}

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    stack: Vec<Value>,
    /// Heights of the stack at the open marks.
    marks: Vec<usize>,
    memo: HashMap<usize, Value>,
    objects: &'a mut Objects,
}

impl Machine<'_> {
    /// One instruction; the value at the last.
    fn step(&mut self) -> Result<Option<Value>, PickleFault> {
        let [code] = self.take::<1>()?;
        match code {
            b'.' => return self.pop().map(Some),
            // Version of the protocol, and frames that only help who reads a stream.
            0x80 => {
                self.take::<1>()?;
            }
            0x95 => {
                self.take::<8>()?;
            }
            b'(' if self.marks.len() == MAX_MARKS => {
                return Err(PickleFault::TooMany {
                    what: "open marks",
                    limit: MAX_MARKS,
                });
            }
            b'(' => self.marks.push(self.stack.len()),
            b'0' => {
                self.pop()?;
            }
            b'1' => {
                self.since_mark()?;
            }
            b'2' => {
                let top = self.top()?;
                self.push(top)?;
            }
            b'N' => self.push(Value::None)?,
            0x88 => self.push(Value::Bool(true))?,
            0x89 => self.push(Value::Bool(false))?,
            b'K' => self.number(1)?,
            b'M' => self.number(2)?,
            b'J' => {
                let number = i32::from_le_bytes(self.take()?);
                self.push(Value::Int(number.into()))?;
            }
            0x8a => {
                let len = usize::from(self.take::<1>()?[0]);
                self.long(len)?;
            }
            0x8b => {
                let len = u32::from_le_bytes(self.take()?) as usize;
                self.long(len)?;
            }
            b'G' => {
                self.take::<8>()?;
                self.push(Value::Float)?;
            }
            0x8c | b'U' => self.text_of(1)?,
            b'X' | b'T' => self.text_of(4)?,
            0x8d => self.text_of(8)?,
            b'C' => self.skip_bytes(1)?,
            b'B' => self.skip_bytes(4)?,
            0x8e => self.skip_bytes(8)?,
            b'}' => self.new_dict()?,
            b']' => self.new_list()?,
            b')' => self.new_tuple(&[])?,
            b't' => {
                let items = self.since_mark()?;
                self.new_tuple(&items)?;
            }
            0x85..=0x87 => {
                let from = self.floor(usize::from(code - 0x84))?;
                let items = self.stack.split_off(from);
                self.new_tuple(&items)?;
            }
            b'a' => {
                let item = self.pop()?;
                self.append(&[item])?;
            }
            b'e' => {
                let items = self.since_mark()?;
                self.append(&items)?;
            }
            b's' => {
                let from = self.floor(2)?;
                let pair = self.stack.split_off(from);
                self.set_items(&pair)?;
            }
            b'u' => {
                let pairs = self.since_mark()?;
                self.set_items(&pairs)?;
            }
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.global(&module, &name)?;
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                let text = |value| self.objects.text(value).map(str::to_owned);
                let named = text(module).zip(text(name));
                let (module, name) = named.ok_or(PickleFault::Operands("a class without a name"))?;
                self.global(&module, &name)?;
            }
            b'R' => self.reduce()?,
            b'b' => self.build()?,
            b'Q' => self.persistent()?,
            b'q' => {
                let [index] = self.take::<1>()?;
                self.remember(index.into())?;
            }
            b'r' => {
                let index = u32::from_le_bytes(self.take()?) as usize;
                self.remember(index)?;
            }
            0x94 => self.remember(self.memo.len())?,
            b'h' => {
                let [index] = self.take::<1>()?;
                self.recall(index.into())?;
            }
            b'j' => {
                let index = u32::from_le_bytes(self.take()?) as usize;
                self.recall(index)?;
            }
            code => return Err(PickleFault::Instruction { code }),
        }
        Ok(None)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], PickleFault> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let taken = rest.first_chunk::<N>().ok_or(PickleFault::Short)?;
        self.at += N;
        Ok(*taken)
    }

    /// So many bytes, without copying them.
    fn slice(&mut self, len: usize) -> Result<&[u8], PickleFault> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let taken = rest.get(..len).ok_or(PickleFault::Short)?;
        self.at += len;
        Ok(taken)
    }

    /// An unsigned number of so many bytes, at most 8.
    fn unsigned(&mut self, bytes: usize) -> Result<u64, PickleFault> {
        let taken = self.slice(bytes)?;
        Ok(taken
            .iter()
            .rev()
            .fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    fn length(&mut self, bytes: usize) -> Result<usize, PickleFault> {
        usize::try_from(self.unsigned(bytes)?).map_err(|_| PickleFault::Short)
    }

    fn number(&mut self, bytes: usize) -> Result<(), PickleFault> {
        let number = self.unsigned(bytes)?;
        self.push(Value::Int(number as i64))
    }

    /// A whole number in two's complement of so many bytes.
    fn long(&mut self, len: usize) -> Result<(), PickleFault> {
        if len > 8 {
            return Err(PickleFault::Number);
        }
        let number = self.unsigned(len)?;
        let unused = 64 - 8 * len as u32;
        let number = match len {
            0 => 0,
            _ => (number << unused) as i64 >> unused,
        };
        self.push(Value::Int(number))
    }

    fn text_of(&mut self, length_bytes: usize) -> Result<(), PickleFault> {
        let len = self.length(length_bytes)?;
        let text = std::str::from_utf8(self.slice(len)?).map_err(|_| PickleFault::Text)?;
        let text = text.to_owned();
        let at = Self::place(self.objects.texts.len())?;
        self.objects.texts.push(text);
        self.push(Value::Text(at))
    }

    fn skip_bytes(&mut self, length_bytes: usize) -> Result<(), PickleFault> {
        let len = self.length(length_bytes)?;
        self.slice(len)?;
        self.push(Value::Bytes)
    }

    /// Text up to the end of a line.
    fn line(&mut self) -> Result<String, PickleFault> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let near = &rest[..rest.len().min(MAX_NAME_BYTES)];
        let end = near.iter().position(|&b| b == b'\n').ok_or(PickleFault::Short)?;
        self.at += end + 1;
        let text = std::str::from_utf8(&near[..end]).map_err(|_| PickleFault::Text)?;
        Ok(text.to_owned())
    }

    fn push(&mut self, value: Value) -> Result<(), PickleFault> {
        if self.stack.len() == MAX_STACK {
            return Err(PickleFault::TooMany {
                what: "values at a time",
                limit: MAX_STACK,
            });
        }
        self.stack.push(value);
        Ok(())
    }

    /// Height of the stack below its last `count` values, none of which may lie below an open mark.
    fn floor(&self, count: usize) -> Result<usize, PickleFault> {
        let lowest = self.marks.last().copied().unwrap_or(0);
        let floor = self.stack.len().checked_sub(count);
        floor
            .filter(|&floor| floor >= lowest)
            .ok_or(PickleFault::Operands("an instruction without its values"))
    }

    fn top(&self) -> Result<Value, PickleFault> {
        Ok(self.stack[self.floor(1)?])
    }

    fn pop(&mut self) -> Result<Value, PickleFault> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    fn since_mark(&mut self) -> Result<Vec<Value>, PickleFault> {
        let mark = self.marks.pop();
        let mark = mark.ok_or(PickleFault::Operands("an instruction without its mark"))?;
        Ok(self.stack.split_off(mark))
    }

    /// The place of one object more.
    fn place(count: usize) -> Result<usize, PickleFault> {
        if count == MAX_OBJECTS {
            return Err(PickleFault::TooMany {
                what: "objects of a kind",
                limit: MAX_OBJECTS,
            });
        }
        Ok(count)
    }

    fn new_dict(&mut self) -> Result<(), PickleFault> {
        let at = Self::place(self.objects.dicts.len())?;
        self.objects.dicts.push(Vec::new());
        self.push(Value::Dict(at))
    }

    fn new_list(&mut self) -> Result<(), PickleFault> {
        let at = Self::place(self.objects.lists.len())?;
        self.objects.lists.push(Vec::new());
        self.push(Value::List(at))
    }

    fn new_tuple(&mut self, items: &[Value]) -> Result<(), PickleFault> {
        let at = Self::place(self.objects.tuples.len())?;
        self.objects.tuples.push(items.into());
        self.push(Value::Tuple(at))
    }

    fn append(&mut self, items: &[Value]) -> Result<(), PickleFault> {
        let Value::List(list) = self.top()? else {
            return Err(PickleFault::Operands("items for what is no list"));
        };
        self.objects.lists[list].extend(items);
        Ok(())
    }

    fn set_items(&mut self, flat: &[Value]) -> Result<(), PickleFault> {
        let Value::Dict(dict) = self.top()? else {
            return Err(PickleFault::Operands("entries for what is no dict"));
        };
        let (pairs, rest) = flat.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(PickleFault::Operands("a key without its value"));
        }
        self.objects.dicts[dict].extend(pairs.iter().map(|&[key, value]| (key, value)));
        Ok(())
    }

    fn remember(&mut self, index: usize) -> Result<(), PickleFault> {
        let top = self.top()?;
        if self.memo.len() == MAX_MEMO && !self.memo.contains_key(&index) {
            return Err(PickleFault::TooMany {
                what: "remembered values",
                limit: MAX_MEMO,
            });
        }
        self.memo.insert(index, top);
        Ok(())
    }

    fn recall(&mut self, index: usize) -> Result<(), PickleFault> {
        let value = self.memo.get(&index).copied();
        self.push(value.ok_or(PickleFault::Operands("a value that was never remembered"))?)
    }

    fn global(&mut self, module: &str, name: &str) -> Result<(), PickleFault> {
        let known = Global::named(module, name).ok_or_else(|| PickleFault::Global {
            name: format!("{module}.{name}").chars().take(128).collect(),
        })?;
        self.push(Value::Global(known))
    }

    /// What a known class or function would make of its arguments.
    fn reduce(&mut self) -> Result<(), PickleFault> {
        const WRONG: PickleFault =
            PickleFault::Operands("arguments that do not suit their class or function");
        let (arguments, callable) = (self.pop()?, self.pop()?);
        let Value::Global(global) = callable else {
            return Err(PickleFault::Operands("a call of what is no class or function"));
        };
        let arguments = self.objects.tuple(arguments).ok_or(WRONG)?;
        match (global, arguments) {
            (Global::OrderedDict, []) => self.new_dict(),
            (Global::Size, &[sizes @ Value::Tuple(_)]) => self.push(sizes),
            (Global::RebuildParameter, &[tensor @ Value::Tensor(_), ..]) => self.push(tensor),
            (Global::RebuildTensor, &[Value::Storage(storage), Value::Int(offset), sizes, strides, ..]) => {
                let ints = |value| -> Result<Vec<i64>, PickleFault> {
                    let items = self.objects.tuple(value).filter(|items| items.len() <= MAX_DIMS);
                    let items = items.ok_or(WRONG)?.iter();
                    let items = items.map(|item| match item {
                        Value::Int(int) => Ok(*int),
                        _ => Err(WRONG),
                    });
                    items.collect()
                };
                let tensor = TensorRef {
                    storage,
                    offset,
                    sizes: ints(sizes)?,
                    strides: ints(strides)?,
                };
                let at = Self::place(self.objects.tensors.len())?;
                self.objects.tensors.push(tensor);
                self.push(Value::Tensor(at))
            }
            _ => Err(WRONG),
        }
    }

    /// Leaves out what is said about a dict beside its entries, as the versions of its layers.
    fn build(&mut self) -> Result<(), PickleFault> {
        self.pop()?;
        match self.top()? {
            Value::Dict(_) => Ok(()),
            _ => Err(PickleFault::Operands("a state for what is no dict")),
        }
    }

    /// A reference to elements outside the pickle: `("storage", type, key, location, elements, ...)`.
    fn persistent(&mut self) -> Result<(), PickleFault> {
        let id = self.pop()?;
        let Some(
            &[
                kind,
                Value::Global(Global::Storage(element)),
                key,
                _location,
                Value::Int(elements),
                ..,
            ],
        ) = self.objects.tuple(id)
        else {
            return Err(PickleFault::Operands("a reference to what is no storage"));
        };
        let (kind, key) = (self.objects.text(kind), self.objects.text(key));
        let key = key.filter(|_| kind == Some("storage"));
        let (Some(key), Ok(elements)) = (key, usize::try_from(elements)) else {
            return Err(PickleFault::Operands("a reference to what is no storage"));
        };
        // Each reference has a copy of its own.
        if key.len() > MAX_KEY_BYTES {
            return Err(PickleFault::Operands("a storage with a longer name than any has"));
        }
        let storage = StorageRef {
            key: key.to_owned(),
            element,
            elements,
        };
        let at = Self::place(self.objects.storages.len())?;
        self.objects.storages.push(storage);
        self.push(Value::Storage(at))
    }
}
